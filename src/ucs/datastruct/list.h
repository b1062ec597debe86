// SPDX-License-Identifier: BSD-3-Clause
//
// Circular doubly linked list with the links inside the elements. The names are those of UCX 1.13,
// whose uct.h brings them along and whose programs therefore use them; inside tagwire the typed
// lists of queue.hpp are used.
#ifndef TAGWIRE_UCS_DATASTRUCT_LIST_H
#define TAGWIRE_UCS_DATASTRUCT_LIST_H

#include <ucs/sys/compiler_def.h>

/// A head is a link whose neighbours are itself when the list is empty.
typedef struct tagwire_ucs_list_link {
    struct tagwire_ucs_list_link* prev;
    struct tagwire_ucs_list_link* next;
} ucs_list_link_t;

// clang-format off
#define UCS_LIST_INITIALIZER(prev, next) { (prev), (next) }
// clang-format on
#define UCS_LIST_HEAD(name) ucs_list_link_t name = UCS_LIST_INITIALIZER(&(name), &(name))

static inline void ucs_list_head_init(ucs_list_link_t* head) {
    head->prev = head;
    head->next = head;
}

static inline void ucs_list_insert_after(ucs_list_link_t* position, ucs_list_link_t* link) {
    link->prev = position;
    link->next = position->next;
    position->next->prev = link;
    position->next = link;
}

static inline void ucs_list_insert_before(ucs_list_link_t* position, ucs_list_link_t* link) {
    ucs_list_insert_after(position->prev, link);
}

static inline void ucs_list_del(ucs_list_link_t* link) {
    link->next->prev = link->prev;
    link->prev->next = link->next;
}

static inline int ucs_list_is_empty(ucs_list_link_t* head) {
    return head->next == head;
}

/// Nonzero when `link` is the one element of the list.
static inline int ucs_list_is_only(ucs_list_link_t* head, ucs_list_link_t* link) {
    return head->next == link && head->prev == link;
}

/// Moves all elements of `added` behind those of `head`. The head `added` is left as it was:
/// initialise it before reuse.
static inline void ucs_list_splice_tail(ucs_list_link_t* head, ucs_list_link_t* added) {
    if (ucs_list_is_empty(added))
        return;
    head->prev->next = added->next;
    added->next->prev = head->prev;
    added->prev->next = head;
    head->prev = added->prev;
}

static inline unsigned long ucs_list_length(ucs_list_link_t* head) {
    unsigned long length = 0;
    const ucs_list_link_t* link = head->next;
    while (link != head) {
        link = link->next;
        ++length;
    }
    return length;
}

#define ucs_list_add_head(head, link) ucs_list_insert_after(head, link)
#define ucs_list_add_tail(head, link) ucs_list_insert_before(head, link)
#define ucs_list_prev(link, type, member) ucs_container_of((link)->prev, type, member)
#define ucs_list_next(link, type, member) ucs_container_of((link)->next, type, member)
#define ucs_list_head(head, type, member) ucs_list_next(head, type, member)
#define ucs_list_tail(head, type, member) ucs_list_prev(head, type, member)

/// Loops over the elements; `element` has the element's pointer type. The second form allows
/// removing `element`.
#define ucs_list_for_each(element, head, member)                                 \
    for (element = ucs_container_of((head)->next, ucs_typeof(*element), member); \
         &element->member != (head);                                             \
         element = ucs_container_of(element->member.next, ucs_typeof(*element), member))
#define ucs_list_for_each_safe(element, following, head, member)                          \
    for (element = ucs_container_of((head)->next, ucs_typeof(*element), member),          \
        following = ucs_container_of(element->member.next, ucs_typeof(*element), member); \
         &element->member != (head); element = following,                                 \
        following = ucs_container_of(following->member.next, ucs_typeof(*following), member))

#endif
