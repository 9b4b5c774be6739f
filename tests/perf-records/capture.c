/* The init of a virtual machine: asks Linux for samples whose user stacks come later (attr.defer_callchain), with what
 * the recorder's events sample, and writes what is in the ring to the console, as a file that perf reads: a header, the
 * event, and the records as they are. `make.py` runs it. */
#include <linux/perf_event.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Of linux/perf_event.h of Linux 6.19: the bits after `sigtrap`. */
#define DEFER_CALLCHAIN (UINT64_C(1) << 38)
#define DEFER_OUTPUT (UINT64_C(1) << 39)
#define PAGES 8
#define PAGE 4096

/* Calls with frame pointers; the innermost is in the kernel most of the time. */
static __attribute__((noinline)) void leaf(void) {
    static char bytes[1 << 16];
    int fd = *(volatile int *)bytes;
    FILE *zero = fd == 0 ? fopen("/dev/zero", "r") : 0;
    if (zero) {
        for (int n = 0; n < 4; n++)
            syscall(SYS_read, fileno(zero), bytes, sizeof bytes);
        fclose(zero);
    }
    memset(bytes, 0, sizeof bytes);
    for (volatile int n = 0; n < 20000; n++) {
    }
}

static __attribute__((noinline)) void middle(void) {
    leaf();
    __asm__ volatile("");
}

static __attribute__((noinline)) void outer(void) {
    middle();
    __asm__ volatile("");
}

/* The file's header: `struct perf_file_header` of tools/perf/util/header.h. */
struct section {
    uint64_t offset, size;
};
struct header {
    char magic[8];
    uint64_t size, attr_size;
    struct section attrs, data, event_types;
    uint64_t features[4];
};
struct file_attr {
    struct perf_event_attr attr;
    struct section ids;
};

static void put(const void *bytes, size_t size) {
    for (size_t n = 0; n < size; n++)
        printf("%02x%s", ((const unsigned char *)bytes)[n], n % 32 == 31 ? "\n" : "");
}

static int capture(void) {
    struct file_attr file = {.attr = {
                                 .type = PERF_TYPE_SOFTWARE,
                                 .size = sizeof(struct perf_event_attr),
                                 .config = PERF_COUNT_SW_CPU_CLOCK,
                                 .sample_period = 200000,
                                 .sample_type = PERF_SAMPLE_IP | PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_READ |
                                                PERF_SAMPLE_CALLCHAIN | PERF_SAMPLE_REGS_USER,
                                 .sample_regs_user = 1 << 7 | 1 << 8,
                                 .disabled = 1,
                                 .sample_id_all = 1,
                             }};
    /* The header of the compiler may be older: the bits follow in the same word, after `type`, `size`, `config`,
       `sample_period`, `sample_type` and `read_format`. */
    uint64_t *bits = (uint64_t *)((char *)&file.attr + 40);
    *bits |= DEFER_CALLCHAIN | DEFER_OUTPUT;
    int fd = (int)syscall(SYS_perf_event_open, &file.attr, 0, -1, -1, 0);
    if (fd < 0) {
        perror("perf_event_open");
        return 1;
    }
    struct perf_event_mmap_page *ring = mmap(0, (1 + PAGES) * PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (ring == MAP_FAILED) {
        perror("mmap");
        return 1;
    }
    ioctl(fd, PERF_EVENT_IOC_ENABLE, 0);
    for (int n = 0; n < 400 && ring->data_head < 5000; n++)
        outer();
    ioctl(fd, PERF_EVENT_IOC_DISABLE, 0);
    /* perf reads no PERF_SAMPLE_READ without an id. A period is 8 bytes at the same place. */
    file.attr.sample_type ^= PERF_SAMPLE_READ | PERF_SAMPLE_PERIOD;
    struct header header = {.magic = {'P', 'E', 'R', 'F', 'I', 'L', 'E', '2'}, .size = sizeof header};
    header.attr_size = sizeof file;
    header.attrs = (struct section){sizeof header, sizeof file};
    header.data = (struct section){sizeof header + sizeof file, ring->data_head};
    printf("\nBEGIN\n");
    put(&header, sizeof header);
    put(&file, sizeof file);
    put((char *)ring + PAGE, ring->data_head);
    printf("\nEND\n");
    return 0;
}

int main(void) {
    mount("dev", "/dev", "devtmpfs", 0, "");
    capture();
    fflush(stdout);
    sync();
    reboot(RB_POWER_OFF);
    return 0;
}
