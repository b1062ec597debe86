/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Prints every constant, size and offset of constants.inc. Compiled against UCX's headers and
 * against ours, it must print the same: a program recompiled from one to the other meets the same
 * numbers, and a structure has the same fields in order.
 */
#include <stddef.h>
#include <stdio.h>
#include <uct/api/uct.h>

#define VALUE(name) printf("%s = %lld\n", #name, (long long)(name));
#define TYPE(type) printf("sizeof %s = %zu\n", #type, sizeof(type));
#define FIELD(type, member) printf("%s.%s at %zu\n", #type, #member, offsetof(type, member));

int main(void) {
#include "constants.inc"
    printf("%zu %zu\n", sizeof(UCT_MEM_HANDLE_NULL), UCS_BIT(63) / UCS_MASK(5));
    return 0;
}
