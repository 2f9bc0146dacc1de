// The latency probe of `make footprint`: requests at a fixed rate, each timed from the moment it was meant to be sent.
//
//     probe PORT PATH BODY_BYTES RATE SECONDS CONNECTIONS keep|fresh
//
// An open loop: request i is due at start + i/RATE whatever happened to those before it. While every connection is busy a
// due request waits and its wait counts, so a stall shows in full (no coordinated omission). `keep` holds CONNECTIONS open,
// `fresh` opens a connection for each request and allows CONNECTIONS at once. BODY_BYTES > 0 makes it a POST.
// Prints one JSON object; times are exact order statistics in microseconds, no histogram stands between.

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

enum {
    HEAD_BYTES_MAX = 16 * 1024,
    BODY_BYTES_MAX = 1024 * 1024,
    SAMPLES_MAX = 10 * 1000 * 1000,
    CONNECTIONS_MAX = 1024,
    GRACE_SECONDS = 5, // for answers under way when the last request has been sent
};

struct connection {
    int fd; // -1 while closed
    bool busy;
    int64_t due_ns;
    size_t head_length; // bytes of `head` received
    bool head_done;
    uint64_t body_left;
    char head[HEAD_BYTES_MAX];
};

static struct {
    uint16_t port;
    char *request;
    size_t request_length;
    int64_t interval_ns;
    int64_t start_ns;
    uint32_t planned;
    bool fresh;
} plan;

static struct connection *connections;
static size_t connection_count;
static size_t next_connection; // requests go round, so that every connection is used
static int epoll_fd;

static int64_t *samples_ns;
static uint32_t sent, answered, failed, refused;

static void die(const char *what) {
    perror(what);
    exit(1);
}

static int64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static int64_t due_ns(uint32_t request) {
    return plan.start_ns + (int64_t)request * plan.interval_ns;
}

static bool connection_open(struct connection *connection) {
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(plan.port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return false;
    // Over loopback the kernel completes the handshake by itself, so that waiting here costs what connecting costs.
    if (connect(fd, (const struct sockaddr *)&address, sizeof address) < 0) {
        close(fd);
        return false;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = connection};
    if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0)
        die("epoll_ctl");
    connection->fd = fd;
    return true;
}

static void connection_close(struct connection *connection) {
    close(connection->fd);
    connection->fd = -1;
    connection->busy = false;
}

static void connection_fail(struct connection *connection) {
    if (connection->busy)
        failed++;
    connection_close(connection);
}

static struct connection *idle_connection(void) {
    for (size_t tried = 0; tried < connection_count; tried++) {
        struct connection *connection = &connections[next_connection];
        next_connection = (next_connection + 1) % connection_count;
        if (!connection->busy)
            return connection;
    }
    return NULL;
}

static void send_request(struct connection *connection, uint32_t request) {
    sent++;
    if (connection->fd < 0 && !connection_open(connection)) {
        refused++;
        return;
    }
    connection->busy = true;
    connection->due_ns = due_ns(request);
    connection->head_length = 0;
    connection->head_done = false;
    // A request fits the socket's buffer, so that a short write means that something is wrong.
    ssize_t wrote = send(connection->fd, plan.request, plan.request_length, MSG_NOSIGNAL);
    if (wrote < 0 || (size_t)wrote != plan.request_length)
        connection_fail(connection);
}

static void send_due(void) {
    int64_t now = now_ns();
    while (sent < plan.planned && due_ns(sent) <= now) {
        struct connection *connection = idle_connection();
        if (connection == NULL)
            return;
        send_request(connection, sent);
    }
}

static void finish(struct connection *connection, bool keep) {
    samples_ns[answered++] = now_ns() - connection->due_ns;
    connection->busy = false;
    if (plan.fresh || !keep)
        connection_close(connection);
}

// The value of a header field in a head that ends in a NUL, or NULL.
static const char *field(const char *head, const char *name) {
    size_t length = strlen(name);
    for (const char *line = strstr(head, "\r\n"); line != NULL; line = strstr(line + 2, "\r\n")) {
        if (strncasecmp(line + 2, name, length) == 0 && line[2 + length] == ':')
            return line + 2 + length + 1 + strspn(line + 2 + length + 1, " ");
    }
    return NULL;
}

// Takes in what is there of the head; answers whether the connection is still good.
static bool read_head(struct connection *connection) {
    size_t room = HEAD_BYTES_MAX - 1 - connection->head_length;
    ssize_t got = recv(connection->fd, connection->head + connection->head_length, room, 0);
    if (got <= 0)
        return false;
    connection->head_length += (size_t)got;
    connection->head[connection->head_length] = '\0';
    const char *end = strstr(connection->head, "\r\n\r\n");
    if (end == NULL)
        return connection->head_length < HEAD_BYTES_MAX - 1;
    if (strncmp(connection->head, "HTTP/1.1 200 ", 13) != 0)
        return false;
    const char *length = field(connection->head, "content-length");
    if (length == NULL)
        return false; // the origin always sends one, and a proxy has no reason to take it out
    uint64_t body = strtoull(length, NULL, 10);
    uint64_t body_got = connection->head_length - (size_t)(end + 4 - connection->head);
    if (body_got > body)
        return false;
    connection->head_done = true;
    connection->body_left = body - body_got;
    return true;
}

static bool read_body(struct connection *connection) {
    static char discarded[256 * 1024];
    ssize_t got = recv(connection->fd, discarded, sizeof discarded, 0);
    if (got <= 0 || (uint64_t)got > connection->body_left)
        return false;
    connection->body_left -= (uint64_t)got;
    return true;
}

static void on_readable(struct connection *connection) {
    if (connection->fd < 0)
        return;
    if (!connection->busy) {
        connection_close(connection); // closed while idle: the next request opens another
        return;
    }
    if (!(connection->head_done ? read_body(connection) : read_head(connection))) {
        connection_fail(connection);
        return;
    }
    if (connection->head_done && connection->body_left == 0) {
        const char *option = field(connection->head, "connection");
        finish(connection, option == NULL || strncasecmp(option, "close", 5) != 0);
    }
}

static int compare(const void *left, const void *right) {
    int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return (a > b) - (a < b);
}

// The smallest sample that at least `permille` of all samples do not exceed.
static double percentile_us(uint32_t permille) {
    uint64_t rank = ((uint64_t)answered * permille + 999) / 1000;
    return answered == 0 ? 0.0 : (double)samples_ns[rank == 0 ? 0 : rank - 1] / 1000.0;
}

static void report(void) {
    qsort(samples_ns, answered, sizeof *samples_ns, compare);
    printf("{\"sent\": %u, \"answered\": %u, \"errors\": %u, \"p50_us\": %.1f, \"p90_us\": %.1f, \"p99_us\": %.1f, "
           "\"p999_us\": %.1f, \"max_us\": %.1f}\n",
           sent, answered, plan.planned - answered,
           percentile_us(500), percentile_us(900), percentile_us(990), percentile_us(999), percentile_us(1000));
}

// A timer rather than a time-out: epoll counts whole milliseconds, which is coarser than what is measured.
static int ticker(void) {
    int fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    struct timespec first = {.tv_sec = plan.start_ns / 1000000000, .tv_nsec = plan.start_ns % 1000000000};
    struct timespec every = {.tv_sec = plan.interval_ns / 1000000000, .tv_nsec = plan.interval_ns % 1000000000};
    struct itimerspec spec = {.it_value = first, .it_interval = every};
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    if (fd < 0 || timerfd_settime(fd, TFD_TIMER_ABSTIME, &spec, NULL) < 0 ||
        epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0)
        die("timerfd");
    return fd;
}

static void run(void) {
    int timer = ticker();
    int64_t deadline_ns = due_ns(plan.planned) + (int64_t)GRACE_SECONDS * 1000000000;
    struct epoll_event events[64];
    while (answered + failed + refused < plan.planned && now_ns() < deadline_ns) {
        int count = epoll_wait(epoll_fd, events, 64, 1000);
        if (count < 0 && errno != EINTR)
            die("epoll_wait");
        for (int i = 0; i < count; i++) {
            uint64_t ticks;
            if (events[i].data.ptr != NULL)
                on_readable(events[i].data.ptr);
            else if (read(timer, &ticks, sizeof ticks) < 0 && errno != EAGAIN)
                die("read");
        }
        send_due();
    }
}

static uint32_t number(const char *text, uint32_t least, uint32_t most) {
    char *end;
    unsigned long value = strtoul(text, &end, 10);
    if (*end != '\0' || end == text || value < least || value > most) {
        fprintf(stderr, "probe: `%s` is not a number from %u to %u\n", text, least, most);
        exit(2);
    }
    return (uint32_t)value;
}

static void write_request(const char *path, size_t body_bytes) {
    char head[1024];
    const char *ending = plan.fresh ? "Connection: close\r\n" : "";
    int length = body_bytes == 0
                     ? snprintf(head, sizeof head, "GET %s HTTP/1.1\r\nHost: 127.0.0.1:%u\r\n%s\r\n", path, plan.port,
                                ending)
                     : snprintf(head, sizeof head,
                                "POST %s HTTP/1.1\r\nHost: 127.0.0.1:%u\r\nContent-Length: %zu\r\n%s\r\n", path,
                                plan.port, body_bytes, ending);
    if (length < 0 || (size_t)length >= sizeof head) {
        fprintf(stderr, "probe: the path is too long\n");
        exit(2);
    }
    plan.request_length = (size_t)length + body_bytes;
    plan.request = malloc(plan.request_length);
    if (plan.request == NULL)
        die("malloc");
    memcpy(plan.request, head, (size_t)length);
    memset(plan.request + length, 'x', body_bytes);
}

int main(int argc, char **argv) {
    if (argc != 8) {
        fprintf(stderr, "usage: probe PORT PATH BODY_BYTES RATE SECONDS CONNECTIONS keep|fresh\n");
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL); // wake when due, not up to 50 µs later
    plan.port = (uint16_t)number(argv[1], 1, UINT16_MAX);
    plan.fresh = strcmp(argv[7], "fresh") == 0;
    write_request(argv[2], number(argv[3], 0, BODY_BYTES_MAX));
    uint32_t rate = number(argv[4], 1, 100000), seconds = number(argv[5], 1, 3600);
    if ((uint64_t)rate * seconds > SAMPLES_MAX) {
        fprintf(stderr, "probe: too many requests to keep every sample\n");
        return 2;
    }
    plan.planned = rate * seconds;
    plan.interval_ns = 1000000000 / rate;
    connection_count = number(argv[6], 1, CONNECTIONS_MAX);
    connections = calloc(connection_count, sizeof *connections);
    samples_ns = malloc(plan.planned * sizeof *samples_ns);
    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (connections == NULL || samples_ns == NULL || epoll_fd < 0)
        die("probe");
    for (size_t i = 0; i < connection_count; i++) {
        connections[i].fd = -1;
        if (!plan.fresh && !connection_open(&connections[i]))
            die("connect");
    }
    plan.start_ns = now_ns() + 10000000;
    run();
    report();
    return 0;
}
