// SPDX-License-Identifier: Apache-2.0
#include "base/resident_memory.h"

#include <link.h>
#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>

namespace flywheel {
namespace {

int give_back_segments(dl_phdr_info* object, size_t, void*) {
  const uintptr_t page_bytes = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  uintptr_t relocated_begin = 0, relocated_end = 0;
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = object->dlpi_phdr[i];
    if (segment.p_type != PT_GNU_RELRO) continue;
    relocated_begin = object->dlpi_addr + segment.p_vaddr;
    relocated_end = relocated_begin + segment.p_memsz;
  }
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const ElfW(Phdr)& segment = object->dlpi_phdr[i];
    // What may have been written to, by relocation too, is not what the file says.
    if (segment.p_type != PT_LOAD || (segment.p_flags & PF_W) != 0) continue;
    const uintptr_t begin = (object->dlpi_addr + segment.p_vaddr) / page_bytes * page_bytes;
    const uintptr_t end = object->dlpi_addr + segment.p_vaddr + segment.p_filesz;
    if (begin < relocated_end && relocated_begin < end) continue;
    // Fails, without effect, for pages that are locked.
    ::madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
  }
  return 0;
}

}  // namespace

void give_back_resident_memory() {
  ::malloc_trim(0);
  ::dl_iterate_phdr(give_back_segments, nullptr);
}

}  // namespace flywheel
