# Starts etcd and kube-apiserver, both of which are measured then, for --start, --against and --reference of this benchmark:
#
#     PROGRAMS=~/.cache/keelson-e2e go run ./test/bench ... --reference 'bash test/bench/kube-apiserver.sh {dir} {port} {tokens} {key}'
#
# PROGRAMS is the folder of the two programs (make -C test/e2e kube-apiserver etcd).
dir=$1 port=$2 tokens=$3 key=$4
client=http://127.0.0.1:$((10000 + RANDOM % 9000)) peer=http://127.0.0.1:$((20000 + RANDOM % 9000))
"$PROGRAMS/etcd" --data-dir "$dir/etcd" --log-level error --listen-client-urls $client --advertise-client-urls $client \
	--listen-peer-urls $peer --initial-advertise-peer-urls $peer --initial-cluster default=$peer &
"$PROGRAMS/kube-apiserver" --etcd-servers $client --bind-address 127.0.0.1 --secure-port "$port" --cert-dir "$dir/certs" \
	--token-auth-file "$tokens" --authorization-mode Node,RBAC --service-account-issuer https://k.local \
	--service-account-key-file "$key" --service-account-signing-key-file "$key" \
	--service-cluster-ip-range 10.0.0.0/16 --endpoint-reconciler-type none &
wait
