package e2e

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"
)

// inNamespace marks the process of TestKubeadm that runs in a network namespace of its own.
const inNamespace = "KEELSON_E2E_NAMESPACE"

// kubeadmAddress is the address of the control plane in that namespace: kubeadm refuses loopback addresses.
const kubeadmAddress = "10.200.0.1"

// kubeadmConfig is complete except for the directory of the cluster.
const kubeadmConfig = `apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
localAPIEndpoint: {advertiseAddress: ` + kubeadmAddress + `}
bootstrapTokens: [{token: abcdef.0123456789abcdef}]
nodeRegistration: {name: first, criSocket: "unix://%[1]s/cri.sock"}
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: v1.37.2
certificatesDir: %[1]s/pki
networking: {serviceSubnet: 10.96.0.0/16}
etcd: {local: {dataDir: %[1]s/etcd}}
---
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failCgroupV1: false
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: JoinConfiguration
discovery: {bootstrapToken: {token: abcdef.0123456789abcdef, apiServerEndpoint: "` + kubeadmAddress + `:6443", unsafeSkipCAVerification: true}}
nodeRegistration: {name: second, criSocket: "unix://%[1]s/cri.sock"}
`

// kubeadmCluster is a cluster that kubeadm makes. Everything is below root, which kubeadm takes for the root directory.
type kubeadmCluster struct {
	root string
	logs string
}

// TestKubeadm lets kubeadm make a control plane and starts Keelson with exactly the command line of the manifest that kubeadm
// writes for kube-apiserver; etcd and kube-controller-manager run with theirs. It needs root, for a network namespace.
func TestKubeadm(t *testing.T) {
	if os.Getenv(inNamespace) == "" {
		runInNamespace(t)
		return
	}
	prepareNamespace(t)
	dir := logDir(t)
	k := &kubeadmCluster{root: filepath.Join(dir, "root"), logs: dir}
	// A path below root means the same for kubeadm, whose root directory is root.
	if err := os.MkdirAll(filepath.Join(k.root, filepath.Dir(k.root)), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/", filepath.Join(k.root, k.root)); err != nil {
		t.Fatal(err)
	}
	config := fmt.Sprintf(kubeadmConfig, k.root)
	parts := strings.Split(config, "---\n")
	for name, content := range map[string]string{"init.yaml": strings.Join(parts[:3], "---\n"), "join.yaml": parts[3]} {
		if err := os.WriteFile(filepath.Join(k.root, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, phase := range []string{"certs all", "kubeconfig all", "control-plane all", "etcd local"} {
		k.kubeadm(t, "init phase "+phase, "init.yaml")
	}
	etcd := k.startManifest(t, "etcd", program(t, "etcd"))
	link := filepath.Join(dir, "kube-apiserver")
	if err := os.Symlink(program(t, "keelson"), link); err != nil {
		t.Fatal(err)
	}
	api := k.startManifest(t, "kube-apiserver", link)
	client := k.client(t, "super-admin.conf")
	eventually(t, time.Minute, "Keelson is ready", func(ctx context.Context) error {
		return client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	})
	k.startManifest(t, "kube-controller-manager", program(t, "kube-controller-manager"))
	for _, phase := range []string{
		"upload-config all", "upload-certs --upload-certs", "bootstrap-token", "addon all",
	} {
		k.kubeadm(t, "init phase "+phase, "init.yaml")
	}
	k.checkAddons(t, client)
	k.join(t, client)
	k.renew(t)
	api.stop(t)
	etcd.kill()
}

// runInNamespace runs the test again in a new network namespace.
func runInNamespace(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can make a network namespace")
	}
	for _, name := range []string{"kubeadm", "kubelet", "kube-controller-manager", "etcd", "keelson"} {
		program(t, name)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v", "-test.timeout=10m")
	cmd.Env = append(os.Environ(), inNamespace+"=yes", "KEELSON_BUILD=no")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Error(err)
	}
}

// prepareNamespace gives the network namespace its addresses.
func prepareNamespace(t *testing.T) {
	t.Helper()
	for _, args := range []string{"link set lo up", "addr add " + kubeadmAddress + "/32 dev lo"} {
		if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %v %s", args, err, out)
		}
	}
}

// kubeadm runs a command to its end.
func (k *kubeadmCluster) kubeadm(t *testing.T, command, config string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	args := append(strings.Fields(command), "--rootfs", k.root, "--config", "/"+config)
	out, err := exec.CommandContext(ctx, program(t, "kubeadm"), args...).CombinedOutput()
	if err != nil {
		t.Fatalf("kubeadm %s: %v\n%s", command, err, out)
	}
	t.Logf("kubeadm %s\n%s", command, out)
	return string(out)
}

// file returns the path of a file that kubeadm has in /etc/kubernetes.
func (k *kubeadmCluster) file(name string) string {
	return filepath.Join(k.root, "etc", "kubernetes", name)
}

// startManifest runs a program with the arguments of the static pod that kubeadm wrote for a component.
func (k *kubeadmCluster) startManifest(t *testing.T, component, path string) *process {
	t.Helper()
	content, err := os.ReadFile(k.file("manifests/" + component + ".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var pod corev1.Pod
	if err := yaml.Unmarshal(content, &pod); err != nil {
		t.Fatal(err)
	}
	command := pod.Spec.Containers[0].Command
	if command[0] != component {
		t.Fatalf("the manifest of %s runs %s", component, command[0])
	}
	args := slices.Clone(command[1:])
	for i := range args { // the pod would have /etc/kubernetes of the machine
		args[i] = strings.ReplaceAll(args[i], "/etc/kubernetes/", k.file("")+"/")
	}
	if component == "kube-apiserver" && !slices.Equal(args, command[1:]) {
		t.Fatal("the command line of kube-apiserver had to be changed")
	}
	return start(t, filepath.Join(k.logs, component+".log"), nil, path, args...)
}

func (k *kubeadmCluster) client(t *testing.T, kubeconfig string) *kubernetes.Clientset {
	t.Helper()
	c, err := clientcmd.BuildConfigFromFlags("", k.file(kubeconfig))
	if err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(c)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// checkAddons checks that the objects of the add-ons are there, by a user that kubeadm bound to a role.
func (k *kubeadmCluster) checkAddons(t *testing.T, masters *kubernetes.Clientset) {
	t.Helper()
	admin := k.client(t, "admin.conf")
	dns, err := admin.CoreV1().Services("kube-system").Get(t.Context(), "kube-dns", metav1.GetOptions{})
	if err != nil || dns.Spec.ClusterIP != "10.96.0.10" {
		t.Errorf("the Service of DNS: %v %v", dns, err)
	}
	if _, err := admin.AppsV1().DaemonSets("kube-system").Get(t.Context(), "kube-proxy", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	// The controllers run elsewhere: the pods of the deployment are theirs.
	eventually(t, time.Minute, "kube-controller-manager makes the pods of CoreDNS", func(ctx context.Context) error {
		pods, err := masters.CoreV1().Pods("kube-system").List(ctx, metav1.ListOptions{LabelSelector: "k8s-app=kube-dns"})
		if err == nil && len(pods.Items) != 2 {
			err = fmt.Errorf("%d pods", len(pods.Items))
		}
		return err
	})
}

// join runs the phases of a joining node until its kubelet has a certificate. The kubelet then ends, as no containers can run.
func (k *kubeadmCluster) join(t *testing.T, masters *kubernetes.Clientset) {
	t.Helper()
	if err := os.Remove(k.file("kubelet.conf")); err != nil { // of the first node
		t.Fatal(err)
	}
	// Another node would have another directory.
	k.kubeadm(t, "join phase kubelet-start", "join.yaml")
	lib := filepath.Join(k.root, "var", "lib", "kubelet")
	// With rotation, the kubelet connects to the container runtime before it asks for a certificate.
	config, err := os.ReadFile(filepath.Join(lib, "config.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	config = []byte(strings.Replace(string(config), "rotateCertificates: true", "rotateCertificates: false", 1))
	if err := os.WriteFile(filepath.Join(lib, "config.yaml"), config, 0o600); err != nil {
		t.Fatal(err)
	}
	kubelet := start(t, filepath.Join(k.logs, "kubelet.log"), nil, program(t, "kubelet"),
		"--bootstrap-kubeconfig="+k.file("bootstrap-kubelet.conf"), "--kubeconfig="+k.file("kubelet.conf"),
		"--config="+filepath.Join(lib, "config.yaml"), "--root-dir="+lib, "--cert-dir="+filepath.Join(lib, "pki"),
		"--hostname-override=second")
	eventually(t, time.Minute, "the kubelet has its certificate", func(context.Context) error {
		_, err := os.Stat(k.file("kubelet.conf"))
		return err
	})
	requests, err := masters.CertificatesV1().CertificateSigningRequests().List(t.Context(), metav1.ListOptions{})
	if err != nil || len(requests.Items) != 1 || requests.Items[0].Spec.Username != "system:bootstrap:abcdef" {
		text, _ := json.Marshal(requests)
		t.Errorf("certificate signing requests: %s %v", text, err)
	}
	node := k.client(t, "kubelet.conf")
	review, err := node.CoreV1().Nodes().Create(t.Context(),
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "second"}}, metav1.CreateOptions{})
	if err != nil || review.Name != "second" {
		t.Errorf("the node cannot register itself: %v", err)
	}
	if _, err := node.CoreV1().Nodes().Create(t.Context(),
		&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "third"}}, metav1.CreateOptions{}); err == nil {
		t.Error("the node registers another one")
	}
	kubelet.kill()
}

// renew renews all certificates and checks that Keelson shows the new serving certificate without a restart, and that the
// renewed credentials of the administrator are accepted.
func (k *kubeadmCluster) renew(t *testing.T) {
	t.Helper()
	shown := func() *x509.Certificate {
		conn, err := tls.Dial("tcp", kubeadmAddress+":6443", &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // compared
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		return conn.ConnectionState().PeerCertificates[0]
	}
	before := shown()
	k.kubeadm(t, "certs renew all", "init.yaml")
	eventually(t, 10*time.Second, "the renewed certificate is shown", func(context.Context) error {
		if shown().Equal(before) {
			return fmt.Errorf("it shows the certificate with serial number %v", before.SerialNumber)
		}
		return nil
	})
	admin := k.client(t, "admin.conf")
	if _, err := admin.CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("with the renewed credentials: %v", err)
	}
}
