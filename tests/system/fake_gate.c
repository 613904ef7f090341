/* SPDX-License-Identifier: Apache-2.0
 *
 * A compromised gate. stagerd starts it instead of stager-gate and gets frames that no
 * gate should send. Its pid selects them; it reads replies and discards them. It ends
 * after some thousand frames, or when stagerd closes the connection.
 */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/status.h"
#include "daemon/gate/frame.h"
#include "proto/wire.h"
#include "tests/core/random.h"

static char frame[sizeof(struct stg_gate_frame) + STG_GATE_PAYLOAD_MAX_BYTES + 64];

static bool put(uint32_t kind, uint32_t zero, size_t payload)
{
    struct stg_gate_frame head = {.kind = kind, .zero = zero, .tag = kind};
    char reply[65536 + 16];
    memcpy(frame, &head, sizeof(head));
    while (recv(STG_GATE_FD, reply, sizeof(reply), MSG_DONTWAIT) > 0)
        continue;
    return send(STG_GATE_FD, frame, sizeof(head) + payload, MSG_NOSIGNAL) >= 0;
}

/* A request that is almost valid: some of its bytes are changed. */
static size_t nearly(struct random *random)
{
    static const char text[] = "name: x\ndataset: [{range: {stop: 3}}]\n";
    char *payload = frame + sizeof(struct stg_gate_frame);
    char token[64];
    memcpy(token, frame, sizeof(token));
    struct stg_request request = {
        .kind = (enum stg_request_kind)(1 + random_below(random, 9)),
        .name = "rows",
        .text = text,
        .text_bytes = sizeof(text) - 1,
        .max_in_flight = 2,
        .dtype = 1,
        .token = token,
        .token_bytes = random_below(random, 64),
        .request_id = "id",
        .request_id_bytes = 2,
    };
    long n = stg_wire_encode_request(&request, payload, STG_GATE_PAYLOAD_MAX_BYTES);
    if (n <= 0)
        return 0;
    for (uint32_t i = random_below(random, 4); i > 0; i--)
        payload[random_below(random, (uint32_t)n)] = (char)random_below(random, 256);
    return (size_t)n;
}

static size_t noise(struct random *random)
{
    size_t n = random_below(random, 8) == 0
                   ? random_below(random, STG_GATE_PAYLOAD_MAX_BYTES)
                   : random_below(random, 200);
    for (size_t i = 0; i < n; i++)
        frame[sizeof(struct stg_gate_frame) + i] = (char)random_below(random, 256);
    return n;
}

int main(void)
{
    struct random random;
    random.state = (uint64_t)getpid();
    bool goes_on = put(STG_GATE_READY, 0, 0);
    for (int i = 0; i < 3000 && goes_on; i++) {
        size_t n = random_below(&random, 2) ? nearly(&random) : noise(&random);
        goes_on = put(STG_GATE_REQUEST, 0, n);
    }
    /* Last, one of the frames for which stagerd closes the connection. */
    switch (random_below(&random, 6)) {
    case 0: put(STG_GATE_READY, 0, 0); break;
    case 1: put(99, 0, 16); break;
    case 2: put(STG_GATE_REQUEST, 1, 16); break;
    case 3: put(STG_GATE_REQUEST, 0, STG_GATE_PAYLOAD_MAX_BYTES + 1); break;
    case 4: (void)!send(STG_GATE_FD, "x", 1, MSG_NOSIGNAL); break;
    default: return 0;
    }
    char byte;
    (void)!read(STDIN_FILENO, &byte, 1);
    pause();
    return 0;
}
