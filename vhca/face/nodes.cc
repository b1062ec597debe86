// SPDX-License-Identifier: BSD-3-Clause
// Device nodes that the tagwire face shows. Its libibverbs needs none, but UCX looks for the
// character device of an HCA first, and librdmacm talks to /dev/infiniband/rdma_cm.
//
// This is preloaded into every program that the launcher starts, so libtagwire-vhca.so is loaded at
// the first open(2) of rdma_cm, not before.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "ucs/sys/fd.hpp"
#include "vhca/face/api.hpp"
#include "vhca/files/files.hpp"
#include "vhca/files/path.hpp"

namespace tagwire::vhca::files {
namespace {

/// The functions of libtagwire-vhca.so.
struct Library {
    decltype(&tagwire_vhca_cm_open) open = nullptr;
    decltype(&tagwire_vhca_cm_write) write = nullptr;
    decltype(&tagwire_vhca_cm_close) close = nullptr;

    /// nullptr: it is not there.
    static const Library* get() {
        static const Library library = load();
        return library.close != nullptr ? &library : nullptr;
    }

  private:
    // It lies one folder above this library.
    static Library load() {
        Library library;
        Dl_info self{};
        if (::dladdr(reinterpret_cast<const void*>(&Library::load), &self) == 0)
            return library;
        std::string path = self.dli_fname;
        path.resize(path.rfind('/') + 1);
        path += "../libtagwire-vhca.so";
        if (void* handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL); handle != nullptr) {
            find(handle, "tagwire_vhca_cm_open", &library.open);
            find(handle, "tagwire_vhca_cm_write", &library.write);
            find(handle, "tagwire_vhca_cm_close", &library.close);
        }
        return library;
    }
    template <typename Function>
    static void find(void* handle, const char* name, Function* function_p) {
        *function_p = reinterpret_cast<Function>(::dlsym(handle, name));
    }
};

class RdmaCmFile final : public OpenFile {
  public:
    RdmaCmFile(const Library& library, tagwire_vhca_cm* cm) : library_(library), cm_(cm) {}
    ~RdmaCmFile() override { library_.close(cm_); }
    RdmaCmFile(const RdmaCmFile&) = delete;
    RdmaCmFile& operator=(const RdmaCmFile&) = delete;

    std::int64_t write(const void* bytes, std::size_t count) override {
        static thread_local std::shared_ptr<RdmaCmFile> other;
        const std::int64_t done = library_.write(cm_, bytes, count, [](int fd) -> tagwire_vhca_cm* {
            other = std::dynamic_pointer_cast<RdmaCmFile>(find_file(fd));
            return other != nullptr ? other->cm_ : nullptr;
        });
        // It ends after the command: that takes the same lock.
        const int error = errno;
        other = nullptr;
        errno = error;
        return done;
    }
    int ioctl(unsigned long /*request*/, void* /*argument*/) override {
        errno = ENOTTY;
        return -1;
    }
    [[nodiscard]] dev_t device_number() const override {
        return device_number_of({.kind = DeviceNode::Kind::kRdmaCm, .index = 0});
    }

  private:
    const Library& library_;
    tagwire_vhca_cm* cm_;
};

std::optional<DeviceNode> find_node(std::string_view path) {
    constexpr std::string_view kStandIn = "/dev/infiniband/tagwire-vhca";
    if (path == kRdmaCmPath)
        return DeviceNode{.kind = DeviceNode::Kind::kRdmaCm, .index = 0};
    if (path.starts_with(kStandIn)) {
        const std::optional<unsigned> index = number_of(path.substr(kStandIn.size()));
        if (index && *index < 10)
            return DeviceNode{.kind = DeviceNode::Kind::kStandIn, .index = *index};
    }
    return std::nullopt;
}

}  // namespace

Place find_place(int dir_fd, const char* path) {
    if (path == nullptr ||
        (std::strstr(path, "rdma_cm") == nullptr && std::strstr(path, "tagwire-vhca") == nullptr)) {
        return {};
    }
    const int before = errno;
    Lexical lexical;
    std::optional<DeviceNode> node;
    if (lexical.set(dir_fd, path))
        node = find_node(lexical.view());
    errno = before;
    return node ? Place{.kind = Place::Kind::kNode, .node = *node, .path = {}} : Place{};
}

int open_node(const DeviceNode& node, int flags) {
    const Library* library = node.kind == DeviceNode::Kind::kRdmaCm ? Library::get() : nullptr;
    if (library == nullptr) {
        errno = ENXIO;
        return -1;
    }
    int fd = -1;
    tagwire_vhca_cm* const cm = library->open(flags, &fd);
    if (cm == nullptr)
        return -1;
    ucs::UniqueFd shown(fd);
    if (!add_file(shown.get(), std::make_shared<RdmaCmFile>(*library, cm))) {
        errno = EMFILE;
        return -1;
    }
    return shown.release();
}

}  // namespace tagwire::vhca::files
