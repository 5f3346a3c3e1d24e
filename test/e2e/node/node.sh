#!/bin/bash
# Runs a cluster of one real node on this machine: containerd, kubelet, kube-proxy, CoreDNS, kube-controller-manager and
# kube-scheduler, with Keelson or kube-apiserver as API server.
#
#   node.sh keelson DIR [FLAGS]          starts Keelson in a new node
#   node.sh kube-apiserver DIR [FLAGS]   starts kube-apiserver and etcd in a new node
#   node.sh start DIR                    starts the programs of the node; returns when the node is Ready
#   node.sh exec DIR COMMAND...          runs a command in the node; KUBECONFIG is set
#   node.sh status DIR                   prints the processes, the node and its pods
#   node.sh stop DIR                     ends everything that runs in the node; DIR keeps the logs
#
# All programs run in namespaces of their own (network, mount, PID, UTS, IPC) with a process 1 of their own. They have
# no route to other networks, and they change no port, route, rule or mount of the machine. If process 1 is killed, the
# kernel ends everything else. Nodes with different DIRs can run at the same time.
#
# DIR/kubeconfig works inside the node and outside: the API server listens on PORT (default 36443) in the network of
# the node, and a pair of socats forwards the same port of 127.0.0.1 of the machine to it.
#
# PROGRAMS is the folder with the programs (see ../Makefile). KEELSON is the keelson to run (default PROGRAMS/keelson).
# KUBECTL is a kubectl that commands of "exec" find before the one in PROGRAMS.
set -euo pipefail
self=$(readlink -f "$0")
usage() { sed -n '5,10s/^# //p' "$self" >&2; exit 2; }
fail() { echo "node.sh: $*" >&2; exit 1; }
[ $# -ge 2 ] || usage
command=$1
case $command in keelson | kube-apiserver | start | exec | status | stop) ;; *) usage ;; esac
mkdir -p "$2"
dir=$(readlink -f "$2")
shift 2

programs=${PROGRAMS:-${XDG_CACHE_HOME:-$HOME/.cache}/keelson-e2e}
port=${PORT:-36443}
name=node1 address=198.18.0.2 dns=10.0.0.10
services=10.0.0.0/16 pods=10.244.0.0/16 node_pods=10.244.0.0/24
cgroup=/keelson-node-$(echo -n "$dir" | md5sum | cut -c1-8)
pki=$dir/pki
sysctls="vm/overcommit_memory vm/panic_on_oom kernel/panic kernel/panic_on_oops kernel/keys/root_maxkeys
  kernel/keys/root_maxbytes"
PATH=${KUBECTL:+$(dirname "$KUBECTL"):}$programs:$programs/node:$programs/conformance:/usr/local/sbin:/usr/local/bin
export PATH=$PATH:/usr/sbin:/usr/bin:/sbin:/bin

# running: whether process 1 of the node runs.
running() { [ -s "$dir/init.pid" ] && grep -qas keelson-node-init "/proc/$(cat "$dir/init.pid")/cmdline"; }

# inside COMMAND...: runs a command in the node.
inside() {
  nsenter -t "$(cat "$dir/init.pid")" -n -m -p -u -i -- \
    env -u BASH_ENV PATH="$PATH" KUBECONFIG="$dir/kubeconfig" HOME="$dir/home" "$@"
}

# background NAME COMMAND...: starts a program in the node. Its output goes to DIR/log/NAME.log.
background() {
  local log=$dir/log/$1.log
  shift
  # shellcheck disable=SC2016
  inside bash -c 'cd "$1"; log=$2; shift 2; setsid "$@" >>"$log" 2>&1 </dev/null &' bash "$dir" "$log" "$@"
}

# await SECONDS COMMAND...: repeats a command until it succeeds.
await() {
  local end=$(($(date +%s) + $1))
  shift
  until "$@" >/dev/null 2>&1; do
    [ "$(date +%s)" -lt $end ] || fail "this did not succeed in time: $*; the logs are in $dir/log"
    sleep 0.3
  done
}

check() {
  [ "$(id -u)" = 0 ] || fail "only root can create namespaces and network devices"
  [ -d /sys/fs/cgroup/memory ] || fail "/sys/fs/cgroup/memory is missing; only cgroup v1 is supported"
  local missing=()
  for p in iptables conntrack socat ip nsenter unshare openssl curl kubelet kube-proxy kube-controller-manager \
    kube-scheduler kubectl containerd runc coredns; do
    command -v $p >/dev/null || missing+=("$p")
  done
  [ ${#missing[@]} = 0 ] || fail "missing: ${missing[*]}; run 'make node-programs' in test/e2e"
  [ -f "$programs/node/images.tar" ] || fail "the images are missing; run 'make node-programs' in test/e2e"
}

# namespaces creates the namespaces with process 1 of the node.
namespaces() {
  check
  running && fail "a node runs in $dir; stop it first"
  mkdir -p "$dir"/{log,home,run,pki,cni,var/kubelet,var/cni,var/pods,var/containers}
  mkdir -p /var/lib/kubelet /var/lib/cni /var/log/pods /var/log/containers /etc/cni/net.d
  save_sysctls
  local controller
  for controller in /sys/fs/cgroup/*/; do
    [ -f "$controller/cgroup.procs" ] || continue
    mkdir -p "$controller$cgroup" 2>/dev/null || continue # an alias such as cpu for cpu,cpuacct
    [ -f "$controller$cgroup/cpuset.cpus" ] || continue
    cat "$controller/cpuset.cpus" >"$controller$cgroup/cpuset.cpus"
    cat "$controller/cpuset.mems" >"$controller$cgroup/cpuset.mems"
  done
  echo "nameserver $address" >"$dir/resolv.conf"
  # The name of the node is not a loopback address: an API server refuses to forward requests to these.
  printf '127.0.0.1 localhost\n%s %s\n' $address $name >"$dir/hosts"
  cat >"$dir/init.sh" <<I
# Process 1 of the node (keelson-node-init).
mount --make-rshared /
mount -t tmpfs tmpfs /run
mkdir -p /run/netns /run/lock
mount --bind $dir/var/kubelet /var/lib/kubelet
mount --bind $dir/var/cni /var/lib/cni
mount --bind $dir/var/pods /var/log/pods
mount --bind $dir/var/containers /var/log/containers
mount --bind $dir/cni /etc/cni/net.d
mount --bind $dir/resolv.conf /etc/resolv.conf
mount --bind $dir/hosts /etc/hosts
hostname $name
ip link set lo up
ip link add eth0 type veth peer name gateway
ip addr add $address/24 dev eth0
ip link set gateway up
ip link set eth0 up
# The addresses of Services are translated by the rules of kube-proxy, but need a route. Nothing else leaves the node.
ip route add $services dev eth0
ip route add unreachable default
echo 1 >/proc/sys/net/ipv4/ip_forward
echo 1 >/proc/sys/net/ipv4/conf/all/route_localnet
echo 1 >/proc/sys/net/bridge/bridge-nf-call-iptables
echo "0 2147483647" >/proc/sys/net/ipv4/ping_group_range
touch $dir/init.ready
trap 'kill -9 -1; exit' TERM
while :; do sleep 1000 & wait \$!; done
I
  rm -f "$dir/init.ready"
  setsid unshare --net --mount --pid --uts --ipc --fork --mount-proc --propagation private \
    bash "$dir/init.sh" keelson-node-init >"$dir/log/init.log" 2>&1 </dev/null &
  local parent=$!
  await 10 test -f "$dir/init.ready"
  pgrep -P $parent | head -1 >"$dir/init.pid"
  disown $parent
  running || fail "process 1 of the node ended: $(cat "$dir/log/init.log")"
}

# save_sysctls keeps the values of the whole machine that kubelet changes, before the first node starts.
# restore_machine restores them after the last node has ended, and removes the empty folders that nodes mount on.
nodes() { ls -d /sys/fs/cgroup/memory/keelson-node-* >/dev/null 2>&1; }
save_sysctls() {
  # A file that is left from a node that was not stopped has the values from before that node.
  if nodes || [ -f "$programs/node/sysctls" ]; then return; fi
  local k
  for k in $sysctls; do [ -f "/proc/sys/$k" ] && echo "$k $(cat "/proc/sys/$k")"; done >"$programs/node/sysctls"
}
restore_machine() {
  # The other nodes have mounts on these folders, which the kernel would remove with the folders.
  rmdir /var/lib/kubelet /var/lib/cni /var/log/pods /var/log/containers /etc/cni/net.d /etc/cni 2>/dev/null || true
  [ -f "$programs/node/sysctls" ] || return 0
  local k v
  while read -r k v; do [ "$(cat "/proc/sys/$k")" = "$v" ] || echo "$v" >"/proc/sys/$k"; done <"$programs/node/sysctls"
  rm "$programs/node/sysctls"
}

# authority NAME: makes a certificate authority.
authority() {
  openssl req -x509 -newkey rsa:2048 -nodes -keyout "$1.key" -out "$1.crt" -subj "/CN=$1" -days 3650 \
    -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign,digitalSignature 2>/dev/null
}

# certificate NAME AUTHORITY SUBJECT EXTENSIONS
certificate() {
  openssl req -newkey rsa:2048 -nodes -keyout "$1.key" -out "$1.csr" -subj "$3" 2>/dev/null
  printf '%b\n' "$4" >"$1.ext"
  openssl x509 -req -in "$1.csr" -CA "$2.crt" -CAkey "$2.key" -CAcreateserial -out "$1.crt" -days 3650 \
    -extfile "$1.ext" 2>/dev/null
}

credentials() {
  [ -f "$pki/tokens.csv" ] && return
  local names=DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc
  names=$names,DNS:kubernetes.default.svc.cluster.local,DNS:localhost,IP:127.0.0.1,IP:${services%.*}.1,IP:$address
  (
    cd "$pki"
    authority ca
    authority front-proxy-ca
    certificate server ca /CN=kube-apiserver "extendedKeyUsage=serverAuth\nsubjectAltName=$names"
    certificate front-proxy front-proxy-ca /CN=front-proxy-client extendedKeyUsage=clientAuth
    certificate kubelet-client ca /O=system:masters/CN=kube-apiserver-kubelet-client extendedKeyUsage=clientAuth
    openssl genrsa -out sa.key 2048 2>/dev/null
    echo 'admintoken,admin,admin,"system:masters"' >tokens.csv
  )
  cat >"$dir/kubeconfig" <<K
apiVersion: v1
kind: Config
clusters:
- name: node
  cluster: {server: "https://127.0.0.1:$port", certificate-authority-data: $(base64 -w0 "$pki/ca.crt")}
users:
- name: admin
  user: {token: admintoken}
contexts:
- name: node
  context: {cluster: node, user: admin}
current-context: node
K
}

# server PROGRAM FLAGS...: starts an API server with the flags that Keelson and kube-apiserver have in common.
server() {
  background apiserver "$@" --bind-address 0.0.0.0 --advertise-address $address --secure-port "$port" \
    --tls-cert-file "$pki/server.crt" --tls-private-key-file "$pki/server.key" --client-ca-file "$pki/ca.crt" \
    --service-account-key-file "$pki/sa.key" --service-account-signing-key-file "$pki/sa.key" \
    --service-account-issuer https://kubernetes.default.svc --service-cluster-ip-range $services \
    --token-auth-file "$pki/tokens.csv" --authorization-mode Node,RBAC \
    --requestheader-client-ca-file "$pki/front-proxy-ca.crt" --requestheader-allowed-names front-proxy-client \
    --requestheader-username-headers X-Remote-User --requestheader-group-headers X-Remote-Group \
    --requestheader-extra-headers-prefix X-Remote-Extra- --requestheader-uid-headers X-Remote-Uid \
    --proxy-client-cert-file "$pki/front-proxy.crt" --proxy-client-key-file "$pki/front-proxy.key" \
    --kubelet-client-certificate "$pki/kubelet-client.crt" --kubelet-client-key "$pki/kubelet-client.key"
  await 120 inside kubectl get --raw /readyz
  forward
}

# forward makes the API server reachable at the same port of 127.0.0.1 outside of the node. A second node needs another
# PORT for that; without it, it is reachable inside only.
forward() {
  background forward socat "UNIX-LISTEN:$dir/run/api.sock,fork,unlink-early" "TCP:127.0.0.1:$port"
  setsid socat "TCP-LISTEN:$port,bind=127.0.0.1,fork,reuseaddr" "UNIX-CONNECT:$dir/run/api.sock" \
    >>"$dir/log/forward.log" 2>&1 </dev/null &
  echo $! >"$dir/forward.pid"
  disown
}

configure() {
  cat >"$dir/containerd.toml" <<T
version = 2
root = "$dir/containerd"
state = "/run/containerd"
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "registry.k8s.io/pause:3.10.2"
  disable_apparmor = true
  # Without CAP_SYS_RESOURCE no process may lower its oom_score_adj.
  restrict_oom_score_adj = true
  max_container_log_line_size = 262144
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "$programs/node/cni"
    conf_dir = "/etc/cni/net.d"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        BinaryName = "$programs/node/runc"
        SystemdCgroup = false
    # The handler of the RuntimeClasses of the conformance suite.
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.test-handler]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.test-handler.options]
        BinaryName = "$programs/node/runc"
T
  cat >"$dir/cni/10-bridge.conflist" <<T
{"cniVersion": "1.0.0", "name": "node", "plugins": [
  {"type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": true, "hairpinMode": true,
    "ipam": {"type": "host-local", "ranges": [[{"subnet": "$node_pods"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
  {"type": "portmap", "capabilities": {"portMappings": true}, "snat": true}]}
T
  cat >"$dir/kubelet.yaml" <<T
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failCgroupV1: false
cgroupDriver: cgroupfs
cgroupRoot: $cgroup
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
authentication: {anonymous: {enabled: true}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
clusterDNS: [$dns]
clusterDomain: cluster.local
resolvConf: $dir/resolv.conf
failSwapOn: false
evictionHard: {memory.available: 100Mi, nodefs.available: "0%", nodefs.inodesFree: "0%", imagefs.available: "0%",
  imagefs.inodesFree: "0%"}
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
maxPods: 110
kubeAPIQPS: 100
kubeAPIBurst: 200
eventRecordQPS: 0
serializeImagePulls: false
volumePluginDir: /var/lib/kubelet/plugins-exec
volumeStatsAggPeriod: 10s
logging: {verbosity: 2}
T
  cat >"$dir/kube-proxy.yaml" <<T
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
clientConnection: {kubeconfig: $dir/kubeconfig, qps: 100, burst: 200}
mode: iptables
clusterCIDR: $pods
hostnameOverride: $name
bindAddress: 0.0.0.0
healthzBindAddress: 127.0.0.1:10256
metricsBindAddress: 127.0.0.1:10249
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
iptables: {minSyncPeriod: 200ms, syncPeriod: 30s}
T
  cat >"$dir/Corefile" <<T
cluster.local:53 in-addr.arpa:53 ip6.arpa:53 {
  bind $address
  errors
  ready 127.0.0.1:8181
  kubernetes cluster.local in-addr.arpa ip6.arpa {
    kubeconfig $dir/kubeconfig
    pods insecure
    ttl 5
  }
}
.:53 {
  bind $address
  template ANY ANY . {
    rcode NXDOMAIN
  }
}
T
  cat >"$dir/dns.yaml" <<T
apiVersion: v1
kind: Service
metadata: {name: kube-dns, namespace: kube-system, labels: {k8s-app: kube-dns, kubernetes.io/name: CoreDNS}}
spec: {clusterIP: $dns, ports: [{name: dns, port: 53, protocol: UDP}, {name: dns-tcp, port: 53, protocol: TCP}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: kube-dns-1, namespace: kube-system, labels: {kubernetes.io/service-name: kube-dns}}
addressType: IPv4
endpoints: [{addresses: [$address], conditions: {ready: true}}]
ports: [{name: dns, port: 53, protocol: UDP}, {name: dns-tcp, port: 53, protocol: TCP}]
T
}

control_plane() {
  local config=(--kubeconfig "$dir/kubeconfig" --authentication-kubeconfig "$dir/kubeconfig"
    --authorization-kubeconfig "$dir/kubeconfig" --bind-address 127.0.0.1 --kube-api-qps 200 --kube-api-burst 400)
  # Keelson pauses its own controllers while kube-controller-manager holds its Lease.
  background kube-controller-manager kube-controller-manager "${config[@]}" --cert-dir "$dir/kube-controller-manager" \
    --service-account-private-key-file "$pki/sa.key" --root-ca-file "$pki/ca.crt" \
    --cluster-signing-cert-file "$pki/ca.crt" --cluster-signing-key-file "$pki/ca.key" \
    --allocate-node-cidrs=true --cluster-cidr $pods --service-cluster-ip-range $services \
    --node-monitor-grace-period 120s
  background kube-scheduler kube-scheduler "${config[@]}" --leader-elect=false --cert-dir "$dir/kube-scheduler"
}

node_programs() {
  local socket=/run/containerd/containerd.sock
  configure
  background containerd containerd --config "$dir/containerd.toml"
  control_plane
  await 60 inside ctr -a $socket version
  inside ctr -a $socket -n k8s.io images import "$programs/node/images.tar" >"$dir/log/import.log" 2>&1 ||
    fail "the images cannot be imported: $(tail -3 "$dir/log/import.log")"
  background kubelet kubelet --config "$dir/kubelet.yaml" --kubeconfig "$dir/kubeconfig" \
    --root-dir /var/lib/kubelet --hostname-override $name --node-ip $address
  await 120 inside kubectl get node $name
  background kube-proxy kube-proxy --config "$dir/kube-proxy.yaml"
  inside kubectl apply -f "$dir/dns.yaml" >"$dir/log/dns.log"
  background coredns coredns -conf "$dir/Corefile"
  await 180 inside kubectl wait --for=condition=Ready node/$name --timeout=2s
  await 60 inside kubectl -n default get serviceaccount default
}

stop() {
  if running; then
    kill -9 "$(cat "$dir/init.pid")"
    for _ in $(seq 50); do running || break; sleep 0.1; done
  fi
  [ ! -s "$dir/forward.pid" ] || kill "$(cat "$dir/forward.pid")" 2>/dev/null || true
  # The kernel removes the processes from the cgroups a little later.
  for _ in 1 2 3 4 5 6 7 8; do
    find /sys/fs/cgroup/*"$cgroup" -depth -type d -exec rmdir {} + 2>/dev/null || true
    ls -d /sys/fs/cgroup/*"$cgroup" >/dev/null 2>&1 || break
    sleep 0.5
  done
  nodes || restore_machine
  rm -rf "$dir"/{init.pid,init.ready,forward.pid,var,containerd,kube-controller-manager,kube-scheduler,cni,run,data}
  rm -rf "$pki" "$dir/kubeconfig"
}

case $command in
keelson)
  namespaces
  credentials
  server "${KEELSON:-$programs/keelson}" serve --data-dir "$dir/data" "$@"
  ;;
kube-apiserver)
  namespaces
  credentials
  background etcd etcd --name etcd --data-dir "$dir/data" --unsafe-no-fsync --quota-backend-bytes 8589934592
  server kube-apiserver --etcd-servers http://127.0.0.1:2379 --cert-dir "$dir/run" \
    --allow-privileged=true "$@"
  ;;
start)
  running || fail "no API server runs in $dir; start one with 'node.sh keelson $dir'"
  node_programs
  inside kubectl get nodes -o wide
  echo "KUBECONFIG=$dir/kubeconfig"
  ;;
exec)
  running || fail "no node runs in $dir"
  inside "$@"
  ;;
status)
  running || fail "no node runs in $dir"
  inside ps -eo pid,etime,rss,args | cut -c1-120
  inside kubectl get nodes,pods -A -o wide
  ;;
stop) stop ;;
esac
