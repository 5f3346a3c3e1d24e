#!/bin/bash
# Prints a transcript of the kubectl commands that connect to pods, in the node of DIR. Times, addresses and generated
# names are replaced, so that the transcripts of two API servers can be compared:
#
#   diff <(kubectl.sh DIR) <(kubectl.sh OTHER-DIR)
#
# KUBECTL is the kubectl to use instead of the one in PROGRAMS. TOP=1 also installs metrics-server, and runs "kubectl
# top".
set -uo pipefail
here=$(dirname "$(readlink -f "$0")")
dir=$(readlink -f "${1:?usage: kubectl.sh DIR}")
busybox=registry.k8s.io/e2e-test-images/busybox:1.37.0-1
agnhost=registry.k8s.io/e2e-test-images/agnhost:2.63.0

inside() { "$here/node.sh" exec "$dir" "$@"; }
k() { inside timeout 100 kubectl "$@"; }

# normalize replaces what differs between two runs.
normalize() {
  tr -d '\r' | sed -E \
    -e 's/[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+(Z|[+-][0-9:]+)/TIME/g' \
    -e 's/[IWE][0-9]{4} [0-9:.]+/TIME/g' -e 's/"[0-9a-f]{64}"/"ID"/g' \
    -e 's/10\.(244|0)\.[0-9]+\.[0-9]+/ADDRESS/g' \
    -e 's/debugger-[a-z0-9]{5}/debugger-NAME/g' \
    -e 's/^(Date|Audit-Id|X-Kubernetes-Pf-[A-Za-z-]+):.*/\1: VALUE/I' \
    -e 's/[0-9]+(m|Mi)( |$)/N\1\2/g' -e 's/ +[0-9]+% +/ N% /g' -e 's/ +/ /g' -e 's/^ //' \
    -e 's/\b[0-9]+(s|m)\b/AGE/g'
}

# run COMMAND...: prints the command, its output and its exit code.
run() {
  echo "\$ kubectl ${*//$dir/DIR}"
  k "$@" 2>&1 </dev/null | normalize
  echo "exit code ${PIPESTATUS[0]}"
}

# typed INPUT COMMAND...: the same with a terminal, on which INPUT is typed.
typed() {
  local input=$1
  shift
  echo "\$ kubectl $* # on a terminal"
  # What is typed before the shell reads it is shown once more, by the terminal.
  (sleep 4; printf '%b' "$input"; sleep 2) | inside timeout 60 script -qec "kubectl $*" /dev/null 2>&1 | normalize |
    grep -vxF "$(printf '%b' "$input")"
}

clean() {
  k delete pod web talker copy --now --ignore-not-found
  k delete service web --ignore-not-found
} >/dev/null 2>&1

clean
run run web --image=$agnhost --port=8080 -- netexec --http-port=8080
run wait --for=condition=Ready pod/web --timeout=90s
run get pod web
for _ in $(seq 50); do
  if k logs web | grep -q UDP; then break; fi
  sleep 0.2
done
run logs web --tail=2
run logs web -c unknown
run logs unknown
run logs web --since=1h --limit-bytes=10
run logs web --previous
run run talker --image=$busybox --restart=Never -- sh -c \
  'for i in 1 2 3 4 5; do echo line $i; sleep 0.5; done; echo error line >&2; exit 3'
run wait --for=condition=ContainersReady pod/talker --timeout=60s
run logs -f talker
run logs talker --timestamps --tail=1
run wait --for=jsonpath='{.status.phase}'=Failed pod/talker --timeout=60s
run exec web -- sh -c 'echo output; sleep 0.3; echo error >&2; sleep 0.3; id -u'
run exec web -- sh -c 'exit 7'
run exec web -- unknown-command
run exec web -c unknown -- true
run exec unknown -- true
echo '$ echo hello | kubectl exec -i web -- cat'
echo hello | k exec -i web -- cat 2>&1 | normalize
echo '$ 8 MiB through kubectl exec -i web -- md5sum'
head -c 8388608 /dev/zero | k exec -i web -- md5sum 2>&1
typed 'stty size | wc -w\ntty\nexit 5\n' exec -it web -- sh
echo '$ echo attached | kubectl run copy --rm -i -- cat'
echo attached | k run copy --image=$busybox --restart=Never --rm -i -- cat 2>&1 | grep -v 'see a command prompt' | normalize
typed 'echo typed in $HOSTNAME\nexit\n' run copy --image=$busybox --restart=Never --rm -it -- sh |
  grep -v -e 'see a command prompt' -e 'All commands and output' -e 'If you don'
head -c 100000 /dev/urandom >"$dir/home/sent"
run cp "$dir/home/sent" web:/tmp/sent
run cp web:/tmp/sent "$dir/home/received"
cmp "$dir/home/sent" "$dir/home/received" && echo "the copy is the same"
rm -f "$dir/home/sent" "$dir/home/received"
run expose pod web --port=80 --target-port=8080
for target in pod/web:8080 service/web:80; do
  echo "\$ kubectl port-forward ${target%:*} :${target#*:}"
  # shellcheck disable=SC2016
  inside bash -c 'kubectl port-forward --address 127.0.0.1 $1 18080:$2 >/dev/null & forward=$!
    for _ in $(seq 50); do
      sleep 0.2
      if curl -s -m 3 http://127.0.0.1:18080/hostname; then break; fi
    done
    echo
    curl -s -m 3 http://127.0.0.1:18080/echo?msg=again; echo
    kill $forward' bash "${target%:*}" "${target#*:}"
done
run port-forward pod/unknown 18080:80
typed 'echo in the debugger\nexit\n' debug -it web --image=$busybox --target=web -- sh
run get pod web -o 'jsonpath={.spec.ephemeralContainers[*].targetContainerName}'
run get --raw /api/v1/namespaces/default/pods/web:8080/proxy/hostname
run get --raw /api/v1/namespaces/default/services/web:80/proxy/hostname
run get --raw /api/v1/nodes/node1/proxy/healthz
echo '$ kubectl proxy'
# shellcheck disable=SC2016
inside bash -c 'kubectl proxy --port=18001 >/dev/null & proxy=$!
  for _ in $(seq 50); do
    sleep 0.2
    if curl -s -m 3 http://127.0.0.1:18001/api/v1/namespaces/default/pods/web:8080/proxy/hostname; then break; fi
  done
  echo
  curl -s -m 3 -o /dev/null -w "%{http_code}\n" http://127.0.0.1:18001/api/v1/namespaces/default/pods/web/attach
  curl -s -m 3 http://127.0.0.1:18001/api/v1/namespaces/default/services/web/proxy/echo?msg=through; echo
  kill $proxy'
if [ "${TOP:-}" ]; then
  k apply -f "$here/metrics-server.yaml" >/dev/null
  run wait --for=condition=Available deployment/metrics-server -n kube-system --timeout=90s
  run wait --for=condition=Available apiservice/v1beta1.metrics.k8s.io --timeout=90s
  for _ in $(seq 60); do
    if k top pod web >/dev/null 2>&1; then break; fi
    sleep 2
  done
  run top node
  run top pod web --containers
  run top pod unknown
  k delete -f "$here/metrics-server.yaml" >/dev/null
fi
run delete pod web --now
clean
