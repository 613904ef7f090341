# SPDX-License-Identifier: Apache-2.0
# Completion of stagerctl for bash: commands, options, names of pipelines, files.

_stagerctl_options()
{
    local common="--json --runtime-dir --help" gate="--gate --token-file"
    case $1 in
        check | schema | list | status | versions) echo "$common $gate" ;;
        commits) echo "$common $gate --job" ;;
        apply) echo "$common $gate --name --replace --if-generation --warm" ;;
        init) echo "$common $gate --name --output --force" ;;
        delete) echo "$common $gate --if-generation" ;;
        rollback) echo "$common $gate --if-generation --warm" ;;
        top) echo "$common $gate --count" ;;
        explain) echo "$common $gate --dot --ideal --seconds" ;;
        cat) echo "$common --limit --rows" ;;
        tap) echo "$common --batches --seconds" ;;
        drain) echo "$common --timeout --disable" ;;
        watch) echo "$common --count --seconds" ;;
        trace) echo "$common --seconds --output --text" ;;
        audit) echo "$common --job --output" ;;
        bugreport) echo "$common --output" ;;
        cache) echo "$common --key" ;;
        *) echo "$common" ;;
    esac
}

# The names of pipelines, without those that a shell would have to quote.
_stagerctl_pipelines()
{
    COLUMNS='' "${COMP_WORDS[0]}" list 2>/dev/null | while read -r name _; do
        [[ $name == NAME || $name == No || $name == quarantined ]] || echo "$name"
    done
}

_stagerctl()
{
    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} command="" n=0 i
    COMPREPLY=()
    for ((i = 1; i < COMP_CWORD; i++)); do
        case ${COMP_WORDS[i]} in
            --runtime-dir | --gate | --token-file | --name | --if-generation | --count | --seconds | --limit | --batches | --timeout | --output | -o | --key | --job) ((i++)) ;;
            -*) ;;
            *)
                if [[ -z $command ]]; then command=${COMP_WORDS[i]}; else ((++n)); fi
                ;;
        esac
    done
    case $before in
        --runtime-dir)
            compopt -o filenames 2>/dev/null
            mapfile -t COMPREPLY < <(compgen -d -- "$word")
            return
            ;;
        --token-file | --output | -o)
            compopt -o filenames 2>/dev/null
            mapfile -t COMPREPLY < <(compgen -f -- "$word")
            return
            ;;
        --gate | --name | --if-generation | --count | --seconds | --limit | --batches | --timeout | --key | --job) return ;;
    esac
    if [[ -z $command ]]; then
        local commands="check apply test list status top explain cat tap delete versions rollback watch trace commits audit metrics schema init index cache token drain bugreport doctor version help"
        mapfile -t COMPREPLY < <(compgen -W "$commands --json --runtime-dir --help" -- "$word")
    elif [[ $word == -* ]]; then
        mapfile -t COMPREPLY < <(compgen -W "$(_stagerctl_options "$command")" -- "$word")
    elif [[ $command == cache && $n == 0 ]]; then
        mapfile -t COMPREPLY < <(compgen -W "list rm" -- "$word")
    else
        case $command in
            check | apply | test | schema | init | cache)
                compopt -o filenames 2>/dev/null
                mapfile -t COMPREPLY < <(compgen -f -- "$word")
                ;;
            audit | index)
                mapfile -t COMPREPLY < <(
                    compgen -W "$(_stagerctl_pipelines)" -- "$word"
                    compgen -f -- "$word"
                )
                ;;
            status | top | explain | cat | tap | delete | versions | rollback | watch | trace | commits)
                [[ $n == 0 ]] && mapfile -t COMPREPLY < <(compgen -W "$(_stagerctl_pipelines)" -- "$word")
                ;;
        esac
    fi
    return 0
}

complete -F _stagerctl stagerctl
