// SPDX-License-Identifier: BSD-3-Clause
#include "bootstrap/secret.hpp"

#include <fcntl.h>
#include <nettle/hmac.h>
#include <nettle/memops.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "ucs/sys/fd.hpp"

namespace tagwire::bootstrap {
namespace {

constexpr std::string_view kPurpose = "tagwire bootstrap 1";

const std::uint8_t* octets(const void* bytes) {
    return static_cast<const std::uint8_t*>(bytes);
}

void add_u32(hmac_sha256_ctx* mac, std::uint32_t value) {
    std::uint8_t bytes[4];
    for (int i = 0; i < 4; ++i)
        bytes[i] = static_cast<std::uint8_t>(value >> (8 * i));
    hmac_sha256_update(mac, sizeof bytes, bytes);
}

void add_text(hmac_sha256_ctx* mac, std::string_view text) {
    add_u32(mac, static_cast<std::uint32_t>(text.size()));
    hmac_sha256_update(mac, text.size(), octets(text.data()));
}

Result check_length(const std::string& secret, const char* source) {
    if (secret.size() >= kSecretBytesMin && secret.size() <= kSecretBytesMax)
        return {};
    return failed(UCS_ERR_INVALID_PARAM, "the secret in %s has %zu bytes; expected %zu to %zu",
                  source, secret.size(), kSecretBytesMin, kSecretBytesMax);
}

/// One line; its end is not part of it.
Result read_file(const char* path, std::string* secret_p) {
    const ucs::UniqueFd fd(::open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    struct stat status {};
    if (!fd || ::fstat(fd.get(), &status) != 0)
        return failed_errno(UCS_ERR_INVALID_PARAM, errno, "cannot open the secret's file %s", path);
    if (!S_ISREG(status.st_mode))
        return failed(UCS_ERR_INVALID_PARAM, "the secret's file %s is not a regular file", path);
    if ((status.st_mode & (S_IRWXG | S_IRWXO)) != 0 || status.st_uid != ::geteuid()) {
        return failed(
            UCS_ERR_INVALID_PARAM,
            "the secret's file %s is open to others; it must belong to this user and have "
            "mode 600 or 400",
            path);
    }
    std::string text(kSecretBytesMax + 2, '\0');
    const ssize_t got = ::read(fd.get(), text.data(), text.size());
    if (got < 0)
        return failed_errno(UCS_ERR_INVALID_PARAM, errno, "cannot read the secret's file %s", path);
    text.resize(static_cast<std::size_t>(got));
    if (text.ends_with('\n'))
        text.pop_back();
    *secret_p = std::move(text);
    return check_length(*secret_p, path);
}

}  // namespace

Result make_nonce(Nonce* nonce_p) {
    if (::getrandom(nonce_p->data(), nonce_p->size(), 0) != static_cast<ssize_t>(nonce_p->size()))
        return failed_errno(UCS_ERR_IO_ERROR, errno, "cannot get random bytes");
    return {};
}

Result choose_secret(const Options& options, std::string* secret_p) {
    const char* const given = options.secret.text;
    const char* const path = options.secret_file.text;
    secret_p->clear();
    if (*given != '\0' && *path != '\0') {
        return failed(UCS_ERR_INVALID_PARAM,
                      "TAGWIRE_BOOTSTRAP_SECRET and TAGWIRE_BOOTSTRAP_SECRET_FILE are both set; "
                      "set only one");
    }
    if (*path != '\0')
        return read_file(path, secret_p);
    *secret_p = given;
    return secret_p->empty() ? Result{} : check_length(*secret_p, "TAGWIRE_BOOTSTRAP_SECRET");
}

Digest prove(const std::string& secret, Prover prover, const Introduction& introduction) {
    hmac_sha256_ctx mac;
    hmac_sha256_set_key(&mac, secret.size(), octets(secret.data()));
    add_text(&mac, kPurpose);
    add_u32(&mac, static_cast<std::uint32_t>(prover));
    add_text(&mac, introduction.job);
    add_u32(&mac, introduction.size);
    add_u32(&mac, introduction.rank);
    hmac_sha256_update(&mac, kDigestBytes, octets(introduction.coordinator_nonce.data()));
    hmac_sha256_update(&mac, kDigestBytes, octets(introduction.rank_nonce.data()));
    Digest digest;
    hmac_sha256_digest(&mac, digest.size(), reinterpret_cast<std::uint8_t*>(digest.data()));
    return digest;
}

bool are_equal(const Digest& expected, std::span<const std::byte> given) {
    return given.size() == expected.size() &&
           memeql_sec(expected.data(), given.data(), expected.size()) != 0;
}

}  // namespace tagwire::bootstrap
