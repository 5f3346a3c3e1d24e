package e2e

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
)

// TestKubectlConnects runs kubectl logs, exec, attach, port-forward and proxies against a scripted kubelet, through
// kube-apiserver and through Keelson, over WebSocket and over SPDY. Both transcripts must be equal.
func TestKubectlConnects(t *testing.T) {
	ip := globalAddress(t)
	dir := logDir(t)
	port := newScriptedKubelet(t, ip)
	servers := []*apiServer{
		kubeAPIServer(t, dir, startEtcd(t, dir), "--disable-admission-plugins", "ServiceAccount"),
		keelsonOn(t, dir, "--disable-admission-plugins", "ServiceAccount"),
	}
	var transcripts [2]string
	for i, s := range servers {
		installNode(t, s, ip, port)
		k := connectingKubectl{t: t, server: s, dir: filepath.Join(dir, fmt.Sprint("kubectl", i))}
		for _, webSockets := range []string{"true", "false"} {
			k.webSockets = webSockets
			k.runAll()
		}
		transcripts[i] = k.transcript.String()
	}
	if transcripts[0] != transcripts[1] {
		t.Errorf("kube-apiserver:\n%s\nKeelson:\n%s", transcripts[0], transcripts[1])
	}
	for _, want := range []string{"typed", "exit status 3", "a line of the log", "forwarded"} {
		if !strings.Contains(transcripts[0], want) {
			t.Errorf("the transcript lacks %q:\n%s", want, transcripts[0])
		}
	}
}

// connectingKubectl runs kubectl and records what it writes.
type connectingKubectl struct {
	t               *testing.T
	server          *apiServer
	dir, webSockets string
	transcript      strings.Builder
}

func (k *connectingKubectl) runAll() {
	for _, command := range []struct{ stdin, args string }{
		{"", "logs p"}, {"", "logs p -f --tail=3"}, {"", "logs two -c d --timestamps"}, {"", "logs two"},
		{"", "logs noip"}, {"", "logs p -c missing"}, {"", "exec p -- echo"}, {"typed", "exec -i p -- cat"},
		{"", "exec p -- fail 3"}, {"", "exec two -- echo"}, {"", "exec two -c i -- echo"}, {"", "exec noip -- echo"},
		{"", "exec lost -- echo"}, {"typed", "attach -i p"}, {"", "exec p -- refuse"}, {"", "get --raw /api/v1/nodes/n1/proxy/x"},
	} {
		k.run(command.stdin, strings.Fields(command.args)...)
	}
	k.forward()
}

func (k *connectingKubectl) command(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(k.t.Context(), program(k.t, "kubectl"), append([]string{
		"--server", k.server.url, "--token", adminToken, "--insecure-skip-tls-verify", "--cache-dir", k.dir,
	}, args...)...)
	cmd.Env = append(os.Environ(), "KUBECTL_REMOTE_COMMAND_WEBSOCKETS="+k.webSockets,
		"KUBECTL_PORT_FORWARD_WEBSOCKETS="+k.webSockets, "KUBECONFIG=/dev/null", "HOME="+k.dir)
	return cmd
}

func (k *connectingKubectl) run(stdin string, args ...string) {
	cmd := k.command(args...)
	cmd.Stdin = strings.NewReader(stdin)
	var out, failures strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &failures
	err := cmd.Run()
	fmt.Fprintf(&k.transcript, "$ kubectl %s (WebSocket %s)\n%s%s%v\n", strings.Join(args, " "), k.webSockets, &out, &failures, err)
}

// forward forwards a port and sends a line through it.
func (k *connectingKubectl) forward() {
	local := freePort(k.t)
	cmd := k.command("port-forward", "p", fmt.Sprintf("%d:80", local))
	if err := cmd.Start(); err != nil {
		k.t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	}()
	var conn net.Conn
	deadline := time.Now().Add(30 * time.Second)
	for conn == nil {
		var err error
		if conn, err = net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", local)); err != nil {
			if time.Now().After(deadline) {
				k.t.Fatalf("kubectl port-forward does not listen: %v", err)
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	defer conn.Close()
	_ = conn.SetDeadline(deadline)
	line := "forwarded" + strings.Repeat(".", 100000) + "\n"
	if _, err := io.WriteString(conn, line); err != nil {
		k.t.Fatal(err)
	}
	back := make([]byte, len(line))
	_, err := io.ReadFull(conn, back)
	fmt.Fprintf(&k.transcript, "$ port-forward (WebSocket %s): %.9s %v %v\n", k.webSockets, back, string(back) == line, err)
}

// installNode creates a node with the scripted kubelet, and pods.
func installNode(t *testing.T, s *apiServer, ip, port string) {
	t.Helper()
	post := func(path, object string) {
		t.Helper()
		status, answer := s.must(t, http.MethodPost, "/api/v1/"+path, jsonType, jsonType, []byte(object))
		if status != http.StatusCreated {
			t.Fatalf("%s: %s: %d %s", s.name, path, status, answer)
		}
	}
	post("nodes", fmt.Sprintf(`{"metadata":{"name":"n1"},"status":{"addresses":[{"type":"InternalIP","address":%q}],
		"daemonEndpoints":{"kubeletEndpoint":{"Port":%s}}}}`, ip, port))
	for name, node := range map[string]string{"p": "n1", "noip": "", "lost": "gone"} {
		post("namespaces/default/pods", fmt.Sprintf(`{"metadata":{"name":%q},"spec":{"nodeName":%q,"containers":[
			{"name":"c","image":"i","stdin":true}]}}`, name, node))
	}
	post("namespaces/default/pods", `{"metadata":{"name":"two"},"spec":{"nodeName":"n1","initContainers":[
		{"name":"i","image":"i"}],"containers":[{"name":"c","image":"i"},{"name":"d","image":"i"}]}}`)
	for _, pod := range []string{"p", "two"} { // kubectl attaches to pods that run
		status, answer := s.must(t, http.MethodPatch, "/api/v1/namespaces/default/pods/"+pod+"/status", jsonType,
			"application/merge-patch+json", []byte(`{"status":{"phase":"Running"}}`))
		if status != http.StatusOK {
			t.Fatalf("%s: %d %s", s.name, status, answer)
		}
	}
}

// newScriptedKubelet runs a scripted kubelet and returns its port.
func newScriptedKubelet(t *testing.T, ip string) string {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", ip+":0")
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/containerLogs/", func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "a line of the log, asked by %s\n", r.URL.RequestURI())
	})
	mux.HandleFunc("/exec/", runCommand)
	mux.HandleFunc("/attach/", runCommand)
	mux.HandleFunc("/portForward/", forwardPort)
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, r.Method, r.URL) })
	s := httptest.NewUnstartedServer(mux)
	_ = s.Listener.Close() // its own listener, on a loopback address
	s.Listener = l
	s.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	s.StartTLS()
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// runCommand writes what it reads to both outputs. The command "fail N" exits with N.
func runCommand(w http.ResponseWriter, r *http.Request) {
	command := r.URL.Query()["command"]
	if len(command) > 0 && command[0] == "refuse" {
		http.Error(w, "the kubelet refuses", http.StatusForbidden)
		return
	}
	if _, err := httpstream.Handshake(r, w, []string{"v5.channel.k8s.io", "v4.channel.k8s.io"}); err != nil {
		return
	}
	streams := make(chan httpstream.Stream, 5)
	conn := spdy.NewResponseUpgrader().UpgradeResponse(w, r,
		func(s httpstream.Stream, _ <-chan struct{}) error { streams <- s; return nil })
	if conn == nil {
		return
	}
	defer conn.Close()
	want := 1
	for _, parameter := range []string{"input", "output", "error"} {
		if r.URL.Query().Get(parameter) == "1" {
			want++
		}
	}
	byType := map[string]httpstream.Stream{}
	for len(byType) < want {
		select {
		case s := <-streams:
			byType[s.Headers().Get(corev1.StreamType)] = s
		case <-time.After(20 * time.Second):
			return
		}
	}
	var in []byte
	if s := byType["stdin"]; s != nil {
		in, _ = io.ReadAll(s) // what came until the end
	}
	for _, name := range []string{"stdout", "stderr"} {
		if s := byType[name]; s != nil {
			fmt.Fprintf(s, "%s of %v: %s\n", name, command, in)
			_ = s.Close()
		}
	}
	status := map[string]any{"metadata": map[string]any{}, "status": "Success"}
	if len(command) == 2 && command[0] == "fail" {
		status = map[string]any{"status": "Failure", "reason": "NonZeroExitCode", "message": "command terminated",
			"details": map[string]any{"causes": []any{map[string]any{"reason": "ExitCode", "message": command[1]}}}}
	}
	_ = json.NewEncoder(byType["error"]).Encode(status) // the client may be gone
	_ = byType["error"].Close()
	select {
	case <-conn.CloseChan():
	case <-time.After(20 * time.Second):
	}
}

// forwardPort sends back what comes on each data stream.
func forwardPort(w http.ResponseWriter, r *http.Request) {
	if _, err := httpstream.Handshake(r, w, []string{"portforward.k8s.io"}); err != nil {
		return
	}
	conn := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(s httpstream.Stream, _ <-chan struct{}) error {
		go func() {
			if s.Headers().Get(corev1.StreamType) == corev1.StreamTypeData {
				_, _ = io.Copy(s, s) // until the client is gone
			}
			_ = s.Close()
		}()
		return nil
	})
	if conn == nil {
		return
	}
	defer conn.Close()
	<-conn.CloseChan()
}
