/* SPDX-License-Identifier: Apache-2.0
 *
 * An applied pipeline: text, applier, and everything derived from the text (spec,
 * element, graph). Immutable. Reference counted, because a stage may outlive the
 * pipeline's next generation. Only the loop takes and drops references.
 */
#ifndef STG_DAEMON_PIPELINE_DEFINITION_H
#define STG_DAEMON_PIPELINE_DEFINITION_H

#include "core/spec.h"
#include "core/state.h"
#include "daemon/dataset/sources/projection.h"
#include "daemon/dataset/vocabulary.h"
#include "daemon/host/identity.h"
#include "daemon/stage/stage.h"
#include "daemon/stage/tap.h"
#include "ops/graph/graph.h"

struct stg_definition {
    unsigned refs;
    struct stg_pipeline_spec *spec;
    struct stg_bump bump; /* of element, text, file */
    struct stg_schema element;
    struct stg_projection projection; /* of the columns that are read */
    struct stg_container *container;  /* NULL: none */
    struct stg_graph *graph;
    struct stg_partitions *partitions;
    struct stg_sizes sizes;
    struct stg_vocabularies vocabularies;
    const char *text;
    size_t text_bytes;
    const char *file;
    const char *script;  /* that applied it; NULL: none */
    uint64_t script_run; /* 0: one before the daemon's start */
    struct stg_identity applier;
    struct stg_share *share;  /* of the applier */
    struct stg_budget budget; /* its part, once the catalog has a use for it */
    uint64_t applied_ns;      /* since 1970; 0: an earlier release, which noted no time */
    struct stg_tuning *tuning; /* what `auto` found, for each stage of it; likewise */
    struct stg_trace trace;    /* of all that runs of it but private runs */
    struct stg_tap tap;        /* likewise */
    char signature[STG_STATE_STEPS_BYTES]; /* for states */
    uint64_t content;           /* stg_signature_content, for digests of batches */
    const char *irreproducible; /* the reason that a state is not exact; NULL: it is */
};

/* Parses a text and checks everything that can be checked without opening the data. Also
 * reads vocabularies, on behalf of the applier. INVALID_ARGUMENT with file, line and
 * column. The caller owns one reference. containers: used for `container`; NULL: nothing
 * is shared. */
int stg_definition_create(const char *text, size_t text_bytes, const char *file,
                          const struct stg_identity *applier,
                          struct stg_containers *containers, struct stg_definition **ret,
                          struct stg_err *err);
struct stg_definition *stg_definition_ref(struct stg_definition *definition);
void stg_definition_unref(struct stg_definition *definition); /* NULL is allowed */

/* Returns the rows of a full staged batch: the size of the last `batch` or `rebatch`
 * without a later `unbatch`; 1 if there is none, 0 if it makes batches of several sizes.
 */
uint64_t stg_definition_batch_rows(const struct stg_definition *definition);

/* With num_clients: auto, sets the number of clients of the run that begins: world_size
 * of its first client, or 1 if that is 0. INVALID_ARGUMENT: it is more than a pipeline
 * may have. */
int stg_definition_begin_run(struct stg_definition *definition, uint32_t world_size,
                             struct stg_err *err);

/* Returns the number of clients of a run that a client with this world_size is part of.
 */
uint32_t stg_definition_num_clients(const struct stg_definition *definition,
                                    uint32_t world_size);

/* Returns the inputs of the memory plan for num_clients clients. Borrows the definition.
 */
struct stg_plan_asked stg_definition_asked(const struct stg_definition *definition,
                                           uint32_t num_clients, uint32_t max_in_flight,
                                           uint64_t default_bytes);

/* Returns the tensors that batches may carry in addition to the boundary; none without
 * smart_stage. */
struct stg_schema stg_definition_slots(const struct stg_definition *definition);

/* Checks that the thread pool of the definition exists in stagerd.yaml. INVALID_ARGUMENT.
 */
int stg_definition_check_settings(const struct stg_definition *definition,
                                  const struct stg_settings *settings,
                                  struct stg_err *err);

/* Writes up to n lines of advice about the pipeline, each in bump. Returns their number.
 */
size_t stg_definition_advice(const struct stg_definition *definition,
                             struct stg_bump *bump, const char **ret, size_t n);

#endif
