// The provider of the experiment `clients`: one fixed response to every request, so the client limits the rate.
//
//     answer PORT
//
// One thread, one level-triggered epoll set. A request consists of its head, of which only the end is detected; bodies are not
// expected, and the provider does not close connections. An event costs one read and one write, the minimum for a provider. If a
// client does not accept a response at once, its connection is closed: a client that leaves 200 bytes unread cannot be measured.

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    READ_BYTES = 16 * 1024,
    ANSWERS_MAX = 64, // sent in one write if several requests arrive together
    EVENTS_MAX = 256,
    BACKLOG = 4096,
    FILES_MAX = 64 * 1024,
};

// `Connection: keep-alive` is for ab, which uses HTTP/1.0 and closes connections without it.
static const char ANSWER[] =
    "HTTP/1.1 200 OK\r\nConnection: keep-alive\r\nContent-Type: text/plain\r\nContent-Length: 110\r\n\r\n"
    "One hundred and ten bytes of plain text, as many as a small answer of an API may have. There is nothing more.\n";
static const char END[] = "\r\n\r\n";

// Number of bytes of the end of a head that each connection has matched so far, by descriptor.
static uint8_t seen[FILES_MAX];
static char answers[ANSWERS_MAX * (sizeof ANSWER - 1)];

static void die(const char *what) {
    perror(what);
    exit(1);
}

static int listen_on(const char *port) {
    char *end;
    unsigned long number = strtoul(port, &end, 10);
    if (*end != '\0' || number == 0 || number > UINT16_MAX) {
        fprintf(stderr, "answer: `%s` is not a port\n", port);
        exit(2);
    }
    struct sockaddr_in address = {
        .sin_family = AF_INET,
        .sin_port = htons((uint16_t)number),
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
    };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        die("socket");
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
    if (bind(fd, (const struct sockaddr *)&address, sizeof address) < 0)
        die("bind");
    if (listen(fd, BACKLOG) < 0)
        die("listen");
    return fd;
}

static void on_client(int epoll_fd, int listener) {
    int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0)
        return;
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    if (fd >= FILES_MAX || epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) < 0) {
        close(fd);
        return;
    }
    seen[fd] = 0;
}

// Counts the heads that end in these bytes, which follow the earlier bytes of the connection.
static size_t heads_ended(int fd, const char *bytes, size_t length) {
    size_t count = 0;
    uint8_t matched = seen[fd];
    for (size_t i = 0; i < length; i++) {
        if (matched == 0) {
            const char *next = memchr(bytes + i, '\r', length - i);
            if (next == NULL)
                break;
            i = (size_t)(next - bytes);
        }
        matched = bytes[i] == END[matched] ? matched + 1 : bytes[i] == '\r';
        if (matched == sizeof END - 1) {
            count++;
            matched = 0;
        }
    }
    seen[fd] = matched;
    return count;
}

static void on_readable(int fd) {
    static char bytes[READ_BYTES];
    ssize_t got = recv(fd, bytes, sizeof bytes, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (got <= 0) {
        close(fd); // closing removes it from the epoll set
        return;
    }
    for (size_t count = heads_ended(fd, bytes, (size_t)got); count > 0;) {
        size_t now = count < ANSWERS_MAX ? count : ANSWERS_MAX;
        size_t length = now * (sizeof ANSWER - 1);
        if (send(fd, answers, length, MSG_NOSIGNAL) != (ssize_t)length) {
            close(fd);
            return;
        }
        count -= now;
    }
}

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: answer PORT\n");
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    for (size_t i = 0; i < ANSWERS_MAX; i++)
        memcpy(answers + i * (sizeof ANSWER - 1), ANSWER, sizeof ANSWER - 1);
    int listener = listen_on(argv[1]), epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (epoll_fd < 0)
        die("epoll_create1");
    struct epoll_event accepts = {.events = EPOLLIN, .data.fd = listener};
    if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, listener, &accepts) < 0)
        die("epoll_ctl");

    struct epoll_event events[EVENTS_MAX];
    for (;;) {
        int count = epoll_wait(epoll_fd, events, EVENTS_MAX, -1);
        if (count < 0 && errno != EINTR)
            die("epoll_wait");
        for (int i = 0; i < count; i++) {
            if (events[i].data.fd == listener)
                on_client(epoll_fd, listener);
            else
                on_readable(events[i].data.fd);
        }
    }
}
