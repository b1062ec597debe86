// SPDX-License-Identifier: BSD-3-Clause
// The entry point, parameters and errors of the provider.
#include "provider.hpp"

#include <uct/api/tagwire_uct.h>

#include <string_view>
#include <utility>

#include "fabric.hpp"
#include "info.hpp"

namespace tagwire::fi {

namespace {

/// Destroyed in cleanup(), which libfabric calls after the destructors of this library.
Settings* the_settings = nullptr;

/// A name has room for one way of first contact: tcp reaches farthest, and would take it from the
/// others.
constexpr const char* kTransports = "auto,^tcp";

void read_milliseconds(const char* name, int* value_p) {
    int value = 0;
    if (fi_param_get_int(&provider, name, &value) != 0)
        return;
    if (value >= 0) {
        *value_p = value;
    } else {
        FI_WARN(&provider, FI_LOG_CORE, "%s is %d, expected 0 or more; using %d\n", name, value,
                *value_p);
    }
}

/// The option of the library has another value than its own.
bool is_set(std::string_view option) {
    struct Question {
        std::string_view option;
        bool is_set = false;
    } question{option};
    tagwire_config_list(
        [](void* arg, const tagwire_config_entry_t* entry) {
            auto& asked = *static_cast<Question*>(arg);
            if (entry->name == asked.option)
                asked.is_set = std::string_view(entry->source) != "default";
        },
        &question);
    return question.is_set;
}

Settings read_settings() {
    Settings read;
    char* transports = nullptr;
    if (fi_param_get_str(&provider, "transports", &transports) == 0 && transports != nullptr)
        read.transports = transports;
    else if (!is_set("TAGWIRE_TRANSPORTS"))
        read.transports = kTransports;
    read_milliseconds("linger", &read.linger_ms);
    read_milliseconds("lookup", &read.lookup_ms);
    return read;
}

void define_parameters() {
    fi_param_define(&provider, "transports", FI_PARAM_STRING,
                    "Transports to use, separated by commas, with or without a device: "
                    "sm,rc:mlx5_0:1. (default: those of TAGWIRE_TRANSPORTS; if it is not set all "
                    "but tcp)");
    fi_param_define(&provider, "linger", FI_PARAM_INT,
                    "Time in milliseconds that closing an endpoint waits for outstanding messages, "
                    "and memory that is registered under a key that peers know for them to forget "
                    "it. (default: 500)");
    fi_param_define(&provider, "lookup", FI_PARAM_INT,
                    "Time in milliseconds that fi_av_insertsvc() waits for the endpoint at a node "
                    "and service to reply. (default: 3000)");
}

void cleanup() {
    forget_limits();
    delete std::exchange(the_settings, nullptr);
}

}  // namespace

fi_provider provider = {
    .version = FI_VERSION(0, 1),
    .fi_version = FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION),
    .context = {},
    .name = kName,
    .getinfo = get_info,
    .fabric = open_fabric,
    .cleanup = cleanup,
};

const Settings& settings() {
    return *the_settings;
}

int error_of(tw_status_t status) {
    switch (status) {
        case TW_OK:
            return 0;
        case TW_ERR_NO_MESSAGE:
            return FI_ENOMSG;
        case TW_ERR_NO_RESOURCE:
        case TW_ERR_BUSY:
            return FI_EAGAIN;
        case TW_ERR_IO_ERROR:
            return FI_EIO;
        case TW_ERR_NO_MEMORY:
            return FI_ENOMEM;
        case TW_ERR_OUT_OF_RANGE:
        case TW_ERR_INVALID_PARAM:
            return FI_EINVAL;
        case TW_ERR_UNREACHABLE:
            return FI_EHOSTUNREACH;
        case TW_ERR_INVALID_ADDR:
            return FI_EADDRNOTAVAIL;
        case TW_ERR_UNSUPPORTED:
        case TW_ERR_NOT_IMPLEMENTED:
            return FI_EOPNOTSUPP;
        case TW_ERR_MESSAGE_TRUNCATED:
            return FI_ETRUNC;
        case TW_ERR_BUFFER_TOO_SMALL:
            return FI_ETOOSMALL;
        case TW_ERR_NO_DEVICE:
            return FI_ENODEV;
        case TW_ERR_CANCELED:
            return FI_ECANCELED;
        case TW_ERR_TIMED_OUT:
        case TW_ERR_ENDPOINT_TIMEOUT:
            return FI_ETIMEDOUT;
        case TW_ERR_EXCEEDS_LIMIT:
            return FI_EMSGSIZE;
        case TW_ERR_REJECTED:
            return FI_ECONNREFUSED;
        case TW_ERR_NOT_CONNECTED:
            return FI_ENOTCONN;
        case TW_ERR_CONNECTION_RESET:
            return FI_ECONNRESET;
        default:
            return FI_EOTHER;
    }
}

tw_status_t status_of(int error) {
    switch (error) {
        case FI_ENOKEY:
        case FI_EACCES:
        case FI_EINVAL:
            return TW_ERR_INVALID_ADDR;
        case FI_EOPNOTSUPP:
            return TW_ERR_UNSUPPORTED;
        case FI_EMSGSIZE:
            return TW_ERR_EXCEEDS_LIMIT;
        case FI_ENOMEM:
            return TW_ERR_NO_MEMORY;
        case FI_ECANCELED:
            return TW_ERR_CANCELED;
        case FI_ETIMEDOUT:
            return TW_ERR_ENDPOINT_TIMEOUT;
        case FI_EHOSTUNREACH:
            return TW_ERR_UNREACHABLE;
        case FI_ENOTCONN:
            return TW_ERR_NOT_CONNECTED;
        case FI_ECONNRESET:
        case FI_ECONNABORTED:
            return TW_ERR_CONNECTION_RESET;
        default:
            return TW_ERR_IO_ERROR;
    }
}

}  // namespace tagwire::fi

extern "C" __attribute__((visibility("default"))) fi_provider* fi_prov_ini(void);

fi_provider* fi_prov_ini(void) {
    using namespace tagwire::fi;
    const int status = without_exceptions([] {
        define_parameters();
        the_settings = new Settings(read_settings());
        return 0;
    });
    return status == 0 ? &provider : nullptr;
}
