/* SPDX-License-Identifier: Apache-2.0 */
#include "daemon/server/rules.h"

#include <stdlib.h>

struct rule {
    bool is_set;
    uid_t *users;
    gid_t *groups;
    size_t n_users, n_groups;
};

struct stg_rules {
    struct rule rules[STG_N_RULES];
};

static const struct {
    const char *key, *what;
} names[STG_N_RULES] = {
    [STG_RULE_APPLY] = {"apply", "apply, check or change pipelines"},
    [STG_RULE_ATTACH] = {"attach", "open pipelines or work for them"},
    [STG_RULE_SEE] = {"see", "see pipelines and metrics"},
};

static void report(const char *rule, const char *of, const char *name,
                   struct stg_err *err)
{
    stg_err(err, -STAGER_INVALID_ARGUMENT,
            "rules.%s: %s %s does not exist: correct the name, or write a number", rule,
            of, name);
}

static int add_users(struct rule *rule, const struct stg_rule_spec *spec,
                     const char *name, struct stg_err *err)
{
    rule->users = calloc(spec->n_users + 1, sizeof(rule->users[0]));
    rule->groups = calloc(spec->n_groups + 1, sizeof(rule->groups[0]));
    if (rule->users == NULL || rule->groups == NULL)
        return stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory for rules");
    for (size_t i = 0; i < spec->n_users; i++) {
        if (stg_user_find(spec->users[i], &rule->users[rule->n_users]))
            rule->n_users++;
        else
            report(name, "user", spec->users[i], err);
    }
    for (size_t i = 0; i < spec->n_groups; i++) {
        if (stg_group_find(spec->groups[i], &rule->groups[rule->n_groups]))
            rule->n_groups++;
        else
            report(name, "group", spec->groups[i], err);
    }
    return 0;
}

int stg_rules_create(const struct stg_rules_spec *spec, struct stg_rules **ret,
                     struct stg_err *err)
{
    struct stg_rules *rules = calloc(1, sizeof(*rules));
    int rc = rules != NULL
                 ? 0
                 : stg_err(err, -STAGER_RESOURCE_EXHAUSTED, "out of memory for rules");
    for (size_t i = 0; rc == 0 && i < STG_N_RULES; i++) {
        rules->rules[i].is_set = spec->rules[i].is_set;
        rc = add_users(&rules->rules[i], &spec->rules[i], names[i].key, err);
    }
    if (rc < 0)
        stg_rules_destroy(rules);
    else
        *ret = rules;
    return rc;
}

void stg_rules_destroy(struct stg_rules *rules)
{
    for (size_t i = 0; rules != NULL && i < STG_N_RULES; i++) {
        free(rules->rules[i].users);
        free(rules->rules[i].groups);
    }
    free(rules);
}

static bool has_group(const struct rule *rule, gid_t gid)
{
    bool found = false;
    for (size_t i = 0; i < rule->n_groups; i++)
        found |= rule->groups[i] == gid;
    return found;
}

static bool allows(const struct rule *rule, const struct stg_identity *identity)
{
    bool may = !rule->is_set || identity->uid == 0 || has_group(rule, identity->gid);
    for (size_t i = 0; i < rule->n_users; i++)
        may |= rule->users[i] == identity->uid;
    for (size_t i = 0; i < identity->n_groups; i++)
        may |= has_group(rule, identity->groups[i]);
    return may;
}

/* Requests on the connection of a stream need no rule of their own. */
static int rule_of(enum stg_request_kind kind)
{
    switch (kind) {
    case STG_REQUEST_CHECK:
    case STG_REQUEST_SCHEMA:
    case STG_REQUEST_APPLY:
    case STG_REQUEST_DELETE:
    case STG_REQUEST_ROLLBACK:
    case STG_REQUEST_INDEX: return STG_RULE_APPLY;
    case STG_REQUEST_OPEN:
    case STG_REQUEST_WORK: return STG_RULE_ATTACH;
    case STG_REQUEST_LIST:
    case STG_REQUEST_STATUS:
    case STG_REQUEST_EXPLAIN:
    case STG_REQUEST_TRACE:
    case STG_REQUEST_VERSIONS:
    case STG_REQUEST_COMMITS:
    case STG_REQUEST_AUDIT:
    case STG_REQUEST_METRICS: return STG_RULE_SEE;
    default: return -1;
    }
}

int stg_rules_check(const struct stg_rules *rules, const struct stg_identity *identity,
                    enum stg_request_kind kind, struct stg_err *err)
{
    int i = rules != NULL ? rule_of(kind) : -1;
    if (i < 0 || allows(&rules->rules[i], identity))
        return 0;
    return stg_err(
        err, -STAGER_PERMISSION_DENIED,
        "rules.%s of stagerd.yaml does not let uid %u %s: an administrator can "
        "add the user or one of its groups to that rule, and reload stagerd",
        names[i].key, (unsigned)identity->uid, names[i].what);
}
