#!/usr/bin/env bash
# Everything that is to be measured on a real GPU, in under 8 minutes: bash validate/hardware/run.sh [OUT]
# Needs a copy of this tree, the binaries of build.sh in validate/hardware/bin (or VRAMLAB_BIN), and a CUDA driver; for the last part Python with
# PyTorch. No Rust, no network. Writes one folder, OUT [out/hardware], and OUT.tar.gz of it.
#
# Safe to stop (Ctrl-C, SIGTERM): the command that runs gives its memory back, and the folder is packed as far as it came. A step that fails or takes
# too long does not end the others; steps.tsv says what became of each. Exit 0 if the driver's steps succeeded and nothing was found different, 1 if
# something was, 4 if a step failed or was cut, 6 without a CUDA driver.
#
# Memory is taken by plain allocation, at most VRAMLAB_LIMIT [24GiB], and never more than nine tenths of what is free; of managed memory never more
# than is free.
set -Euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

out=${1:-out/hardware}
bin=${VRAMLAB_BIN:-validate/hardware/bin}
limit=${VRAMLAB_LIMIT:-24GiB}
repeats=${VRAMLAB_REPEATS:-60}
# s for all of it
budget=${VRAMLAB_BUDGET:-450}
python=${VRAMLAB_PYTHON:-python3}

validate=$bin/vramlab-validate
vramlab=$bin/vramlab
plugin=$bin/libvramlab_torch.so
record=validate/recorder/vramlab_record.py
bert=validate/hardware/bert.py
examples=(workloads/examples/*.pickle.gz)
strategies=(
    cuda.malloc
    cuda.async_pool
    torch.caching
    torch.caching:expandable_segments=true
    stitch.gmlake
    tensorflow.bfc
    rmm.pool
    paddle.auto_growth
)
# the rules that our strategy knows; a recording of any other version is held against both
rules=(2.15 2.9)
served=torch.caching:expandable_segments=true

if [[ ! -x $validate ]]; then
    echo "run.sh: found no $validate; bash validate/hardware/build.sh makes it, on a machine with Rust" >&2
    exit 2
fi
mkdir -p "$out/log" "$out/torch" || exit 7
printf 'step\tcode\tseconds\tremark\n' >"$out/steps.tsv"

child=0 stopped=0 worst=0
stop() {
    stopped=1
    ((child)) && kill -TERM "$child" 2>/dev/null
}
trap stop INT TERM

note() {
    printf '%s\t%s\t%s\t%s\n' "$@" >>"$out/steps.tsv"
    echo "run.sh: $1: code $2 after $3 s${4:+ ($4)}" >&2
}

# step NAME SECONDS COMMAND…: at most so long, and no longer than what is left of the budget. Standard output goes to OUT/NAME.
# The code is in `code`; 124 means cut.
step() {
    local name=$1 most=$2 began=$SECONDS left remark=''
    shift 2
    left=$((budget - SECONDS))
    code=4
    if ((stopped)); then
        note "$name" - 0 'not begun: stopped'
        return
    fi
    if ((left < 5)); then
        note "$name" - 0 'not begun: no time left'
        return
    fi
    ((most > left)) && most=$left
    mkdir -p "$out/$(dirname "$name")" "$out/log/$(dirname "$name")"
    timeout -k 10 "$most" "$@" >"$out/$name" 2>"$out/log/$name.err" &
    child=$!
    wait "$child"
    code=$?
    # a signal ends the first wait: the command gives back what it holds
    while kill -0 "$child" 2>/dev/null; do
        wait "$child"
        code=$?
    done
    child=0
    ((code == 124 || code == 137)) && remark="cut after $most s"
    note "$name" "$code" $((SECONDS - began)) "$remark"
}

# The driver's steps decide how this ends.
must() {
    step "$@"
    case $code in
    0) ;;
    1) ((worst < 1)) && worst=1 ;;
    6) worst=6 ;;
    *) ((worst != 6)) && worst=4 ;;
    esac
    return 0
}

# each FLAG VALUE…: the flag before each value, a line for each of the two.
each() { printf -- "$1\n%s\n" "${@:2}"; }
mapfile -t with_strategies < <(each --strategy "${strategies[@]}")
mapfile -t with_traces < <(each --trace "${examples[@]}")

cuda_side() {
    must probe.json 20 "$validate" probe --layout --format json
    ((worst == 6)) && return
    must measure.txt 110 "$validate" measure --limit "$limit" --repeats "$repeats" -o "$out/measured.csv"
    local device=generic
    if [[ -s $out/measured.csv ]]; then
        must fit.txt 10 "$validate" fit "$out/measured.csv" --name measured -o "$out/device.toml"
        [[ -s $out/device.toml ]] && device=$out/device.toml
    fi
    must replay.txt 80 "$validate" replay varlen --set steps=4 "${with_traces[@]}" "${with_strategies[@]}" \
        --limit "$limit" --device "$device" --out "$out/replay.jsonl"
    # traces that the fit has not seen
    must compare.txt 110 "$validate" compare varlen --set steps=4 "${with_traces[@]}" "${with_strategies[@]}" \
        --limit "$limit" --device "$device" --out "$out/compare.jsonl"
    must compare_work.txt 40 "$validate" compare varlen --set steps=1 --with-work --strategy torch.caching --strategy cuda.async_pool \
        --limit "$limit" --device "$device" --out "$out/compare_work.jsonl"
    # what others wrote and measured cannot decide how this ends
    step report.md 10 "$validate" report "$out"
}

# Which version's rules does this PyTorch follow? The one whose replay matches every recorded placement.
verify() {
    local file=$1 name=$2 version
    [[ -x $vramlab && -s $file ]] || return 0
    for version in "${rules[@]}"; do
        step "torch/$name.rules_$version.txt" 30 "$vramlab" replay "$file" --verify --torch-version "$version"
    done
}

torch_side() {
    local variant
    step torch/version.txt 40 "$python" -c 'import sys, torch; print(torch.__version__, torch.version.cuda); sys.exit(0 if torch.cuda.is_available() else 6)'
    if ((code != 0)); then
        note torch - 0 "left out: no PyTorch with a CUDA device for $python"
        return
    fi
    for variant in fp32 amp ckpt eager; do
        step "torch/$variant.json" 60 "$python" "$record" -o "$out/torch/$variant.pickle.gz" "$bert" --variant "$variant" --steps 2
        verify "$out/torch/$variant.pickle.gz" "$variant"
    done
    PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True \
        step torch/expandable.json 60 "$python" "$record" -o "$out/torch/expandable.pickle.gz" "$bert" --steps 2
    verify "$out/torch/expandable.pickle.gz" expandable
    # one training run without our allocator, and one served by it
    step torch/unserved.json 60 "$python" "$bert" --steps 5
    [[ -s $plugin ]] || return 0
    step torch/served.json 60 "$python" "$bert" --steps 5 --plugin "$plugin" --strategy "$served" \
        --trace "$out/torch/served.jsonl.gz" --summary "$out/torch/served_summary.json"
    # the same strategy in simulation, over what it logged
    [[ -x $vramlab && -s $out/torch/served.jsonl.gz ]] &&
        step torch/served_simulated.json 30 "$vramlab" replay "$out/torch/served.jsonl.gz" --strategy "$served" --format json
    return 0
}

cuda_side
((worst == 6)) || torch_side
trap '' INT TERM
if [[ -d $out/torch ]]; then
    # a line for each recording and version: placed, matched
    grep -H '^placed' "$out"/torch/*.rules_*.txt 2>/dev/null | sed "s|^$out/torch/||; s|\.txt:|: |" >"$out/rules.txt" || true
    [[ -s $out/rules.txt ]] && cat "$out/rules.txt" >&2
fi
tar czf "$out.tar.gz" -C "$(dirname "$out")" "$(basename "$out")" || worst=7
((stopped && worst == 0)) && worst=4
echo "run.sh: $out.tar.gz, $SECONDS s" >&2
exit "$worst"
