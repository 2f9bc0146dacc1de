// The lower bound in the experiment `peers`: a TCP relay that copies bytes without parsing HTTP.
//
//     relay LISTEN_PORT UPSTREAM_PORT
//
// One thread, one level-triggered epoll set. Every client connection has its own upstream connection, so nothing is
// inspected, pooled or rewritten. In the steady state an event costs one read and one write, the minimum for a proxy in
// user space. After a short write, the rest is buffered and reading stops until it is sent (backpressure).

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
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    BUFFER_BYTES = 64 * 1024, // one shared buffer: it is empty again before the next event is handled
    EVENTS_MAX = 256,
    BACKLOG = 4096,
};

// One socket of a pair. `parked` holds bytes from the peer that this socket could not accept yet.
struct side {
    int fd;
    uint32_t interest; // events registered with epoll, to avoid a system call without a change
    bool read_done;    // the sender has closed; the peer's sending side is shut down after delivery
    char *parked;
    size_t parked_at, parked_end;
    struct side *peer;
    struct pair *pair;
};

struct pair {
    struct side client, upstream;
    bool dead;
    struct pair *next_dead;
};

static int epoll_fd;
static char buffer[BUFFER_BYTES];
// Pairs are freed after a whole batch of events, because a later event of the batch may still point to them.
static struct pair *dead_pairs;

static void die(const char *what) {
    perror(what);
    exit(1);
}

static void no_delay(int fd) {
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
}

static struct sockaddr_in loopback(const char *port) {
    char *end;
    unsigned long number = strtoul(port, &end, 10);
    if (*end != '\0' || number == 0 || number > UINT16_MAX) {
        fprintf(stderr, "relay: `%s` is not a port\n", port);
        exit(2);
    }
    return (struct sockaddr_in){
        .sin_family = AF_INET,
        .sin_port = htons((uint16_t)number),
        .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
    };
}

static void pair_kill(struct pair *pair) {
    if (pair->dead)
        return;
    pair->dead = true;
    close(pair->client.fd); // closing removes it from the epoll set
    close(pair->upstream.fd);
    pair->next_dead = dead_pairs;
    dead_pairs = pair;
}

static void bury_dead(void) {
    while (dead_pairs != NULL) {
        struct pair *pair = dead_pairs;
        dead_pairs = pair->next_dead;
        free(pair->client.parked);
        free(pair->upstream.parked);
        free(pair);
    }
}

// Watches for reading while the peer accepts bytes, and for writing while bytes are parked.
static void watch(struct side *side) {
    uint32_t wanted = 0;
    if (!side->read_done && side->peer->parked == NULL)
        wanted |= EPOLLIN;
    if (side->parked != NULL)
        wanted |= EPOLLOUT;
    if (wanted == side->interest)
        return;
    // A side without wanted events leaves the set: epoll always reports a hang-up, which would cause a busy loop.
    int change = wanted == 0 ? EPOLL_CTL_DEL : side->interest == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
    side->interest = wanted;
    struct epoll_event event = {.events = wanted, .data.ptr = side};
    if (epoll_ctl(epoll_fd, change, side->fd, &event) < 0)
        pair_kill(side->pair);
}

// If all bytes from `from` have been delivered to `to`, forwards the end of the stream. Closes a pair that has ended in both
// directions.
static void pass_end(struct side *from, struct side *to) {
    if (!from->read_done || to->parked != NULL)
        return;
    if (to->read_done && from->parked == NULL)
        pair_kill(from->pair);
    else
        shutdown(to->fd, SHUT_WR);
}

static void park(struct side *to, const char *bytes, size_t length) {
    to->parked = malloc(length);
    if (to->parked == NULL) {
        pair_kill(to->pair);
        return;
    }
    memcpy(to->parked, bytes, length);
    to->parked_at = 0;
    to->parked_end = length;
}

static void on_readable(struct side *from) {
    struct side *to = from->peer;
    ssize_t got = recv(from->fd, buffer, sizeof buffer, 0);
    if (got < 0) {
        if (errno != EAGAIN && errno != EINTR)
            pair_kill(from->pair);
        return;
    }
    if (got == 0) {
        from->read_done = true;
        pass_end(from, to);
    } else {
        ssize_t sent = send(to->fd, buffer, (size_t)got, MSG_NOSIGNAL);
        if (sent < 0 && errno != EAGAIN && errno != EINTR) {
            pair_kill(from->pair);
            return;
        }
        size_t taken = sent < 0 ? 0 : (size_t)sent;
        if (taken < (size_t)got)
            park(to, buffer + taken, (size_t)got - taken);
    }
    if (!from->pair->dead) {
        watch(from);
        watch(to);
    }
}

static void on_writable(struct side *to) {
    if (to->parked == NULL)
        return;
    ssize_t sent = send(to->fd, to->parked + to->parked_at, to->parked_end - to->parked_at, MSG_NOSIGNAL);
    if (sent < 0) {
        if (errno != EAGAIN && errno != EINTR)
            pair_kill(to->pair);
        return;
    }
    to->parked_at += (size_t)sent;
    if (to->parked_at < to->parked_end)
        return;
    free(to->parked);
    to->parked = NULL;
    pass_end(to->peer, to);
    if (!to->pair->dead) {
        watch(to);
        watch(to->peer);
    }
}

static bool side_open(struct side *side, int fd, struct side *peer, struct pair *pair) {
    *side = (struct side){.fd = fd, .interest = EPOLLIN, .peer = peer, .pair = pair};
    no_delay(fd);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = side};
    return epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0;
}

// Accepts one client and connects upstream for it without waiting: a send before the connection is established fails with EAGAIN,
// and the bytes are parked.
static void on_client(int listener, const struct sockaddr_in *upstream) {
    int client_fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (client_fd < 0)
        return;
    int upstream_fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    struct pair *pair = calloc(1, sizeof *pair);
    if (upstream_fd < 0 || pair == NULL ||
        (connect(upstream_fd, (const struct sockaddr *)upstream, sizeof *upstream) < 0 && errno != EINPROGRESS)) {
        close(client_fd);
        if (upstream_fd >= 0)
            close(upstream_fd);
        free(pair);
        return;
    }
    bool opened = side_open(&pair->client, client_fd, &pair->upstream, pair);
    opened &= side_open(&pair->upstream, upstream_fd, &pair->client, pair);
    if (!opened)
        pair_kill(pair);
}

static int listen_on(const struct sockaddr_in *address) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        die("socket");
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
    if (bind(fd, (const struct sockaddr *)address, sizeof *address) < 0)
        die("bind");
    if (listen(fd, BACKLOG) < 0)
        die("listen");
    return fd;
}

static void dispatch(const struct epoll_event *event) {
    struct side *side = event->data.ptr;
    if (side->pair->dead)
        return;
    if (event->events & EPOLLOUT)
        on_writable(side);
    if (side->pair->dead)
        return;
    if (event->events & EPOLLIN)
        on_readable(side);
    else if (event->events & (EPOLLERR | EPOLLHUP))
        pair_kill(side->pair); // reported without being watched, and nothing left to read: the socket is dead
}

int main(int argc, char **argv) {
    if (argc != 3) {
        fprintf(stderr, "usage: relay LISTEN_PORT UPSTREAM_PORT\n");
        return 2;
    }
    signal(SIGPIPE, SIG_IGN);
    struct sockaddr_in own = loopback(argv[1]), upstream = loopback(argv[2]);
    int listener = listen_on(&own);
    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (epoll_fd < 0)
        die("epoll_create1");
    struct epoll_event accepts = {.events = EPOLLIN, .data.ptr = NULL};
    if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, listener, &accepts) < 0)
        die("epoll_ctl");

    struct epoll_event events[EVENTS_MAX];
    for (;;) {
        int count = epoll_wait(epoll_fd, events, EVENTS_MAX, -1);
        if (count < 0 && errno != EINTR)
            die("epoll_wait");
        for (int i = 0; i < count; i++) {
            if (events[i].data.ptr == NULL)
                on_client(listener, &upstream);
            else
                dispatch(&events[i]);
        }
        bury_dead();
    }
}
