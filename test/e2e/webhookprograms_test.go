package e2e

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// manifest is a file of objects for a program.
func manifest(t *testing.T, path string) string {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v: build the programs with make", err)
	}
	return string(content)
}

// TestCertManager runs cert-manager: its webhook, which judges its objects and records who made them, cainjector, which
// writes the webhook's authority into the configurations, and the controller.
func TestCertManager(t *testing.T) {
	c := newCluster(t)
	k := c.kubectl(t, c.admin)
	definitions := filepath.Join(programs, "cert-manager", "crds")
	k.run(t, "apply", "--server-side", "-f", definitions)
	k.run(t, "wait", "--for=condition=Established", "--timeout=60s", "-f", definitions)
	port := freePort(t)
	k.runWith(t, strings.ReplaceAll(manifest(t, "testdata/programs/certmanager.yaml"), "PORT", fmt.Sprint(port)),
		"apply", "-f", "-")
	run := func(name string, args ...string) {
		t.Helper()
		user := c.account(t, "cert-manager", name)
		args = append([]string{"--kubeconfig", user.kubeconfig}, args...)
		start(t, filepath.Join(c.dir, name+".log"), nil, program(t, "cert-manager/"+name), args...)
	}
	run("webhook", fmt.Sprint("--secure-port=", port), fmt.Sprint("--healthz-port=", freePort(t)),
		"--dynamic-serving-ca-secret-namespace=cert-manager", "--dynamic-serving-ca-secret-name=cert-manager-webhook-ca",
		"--dynamic-serving-dns-names=cert-manager-webhook.cert-manager.svc")
	run("cainjector", "--leader-elect=false")
	run("controller", "--leader-elect=false", "--cluster-resource-namespace=cert-manager",
		fmt.Sprint("--metrics-listen-address=127.0.0.1:", freePort(t)))

	const issuer = `{"apiVersion":"cert-manager.io/v1","kind":"Issuer","metadata":{"name":"self"},"spec":{"selfSigned":{}}}`
	eventually(t, unhurried, "the webhook admits an Issuer", func(context.Context) error {
		if a := k.try(t, issuer, "apply", "-f", "-"); a.code != 0 {
			return fmt.Errorf("%s", a.err)
		}
		return nil
	})
	certificate := `{"apiVersion":"cert-manager.io/v1","kind":"Certificate","metadata":{"name":"cert"},"spec":{` +
		`"dnsNames":["a.example.com"],"secretName":"made","issuerRef":{"name":"self"}%s}}`
	k.runWith(t, fmt.Sprintf(certificate, ""), "apply", "-f", "-")
	k.run(t, "wait", "--for=condition=Ready", "--timeout=120s", "certificate/cert")

	encoded := k.jsonpath(t, `{.data.tls\.crt}`, "secret", "made")
	text, err := base64.StdEncoding.DecodeString(encoded)
	block, _ := pem.Decode(text)
	if err != nil || block == nil {
		t.Fatalf("the secret has no certificate: %q, %v", encoded, err)
	}
	if made, err := x509.ParseCertificate(block.Bytes); err != nil || made.VerifyHostname("a.example.com") != nil {
		t.Errorf("the certificate: %v, %+v", err, made)
	}
	// The mutating webhook records who has sent the request.
	if by := k.jsonpath(t, "{.items[*].spec.username}", "certificaterequests"); by != "system:serviceaccount:cert-manager:controller" {
		t.Errorf("the CertificateRequest was sent by %q", by)
	}
	for _, refused := range []struct{ object, words string }{
		{fmt.Sprintf(certificate, `,"renewBefore":"1s"`), "spec.renewBefore"},
		{strings.Replace(issuer, `"selfSigned":{}`, "", 1), "spec: Required value"},
	} {
		a := k.try(t, refused.object, "apply", "-f", "-")
		if a.code == 0 || !strings.Contains(a.err, `admission webhook "webhook.cert-manager.io" denied the request`) ||
			!strings.Contains(a.err, refused.words) {
			t.Errorf("%s: exit %d %s%s", refused.object, a.code, a.out, a.err)
		}
	}
}

// TestGatekeeper runs Gatekeeper as its own manifest installs it, with its service account: a constraint refuses
// namespaces without a label, and an AssignMetadata gives pods a label.
func TestGatekeeper(t *testing.T) {
	c := newCluster(t)
	k := c.kubectl(t, c.admin)
	port := freePort(t)
	const service = "gatekeeper-webhook-service"
	all := manifest(t, filepath.Join(programs, "gatekeeper", "gatekeeper.yaml"))
	all = strings.ReplaceAll(all, "      name: "+service+"\n", fmt.Sprintf("      name: %s\n      port: %d\n", service, port))
	k.runWith(t, all, "apply", "--server-side", "-f", "-")
	// The program is outside of the cluster: its Service becomes a name.
	k.run(t, "patch", "service", service, "-n", "gatekeeper-system", "--type=merge", "-p",
		`{"spec":{"type":"ExternalName","externalName":"localhost","clusterIP":null,"clusterIPs":null,"selector":null}}`)
	certificates := filepath.Join(c.dir, "certs")
	if err := os.Mkdir(certificates, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("POD_NAME", "gatekeeper-1")
	t.Setenv("POD_NAMESPACE", "gatekeeper-system")
	user := c.account(t, "gatekeeper-system", "gatekeeper-admin")
	start(t, filepath.Join(c.dir, "gatekeeper.log"), nil, program(t, "gatekeeper/gatekeeper"),
		"--kubeconfig", user.kubeconfig, "--debug-use-fake-pod", "--cert-dir", certificates,
		fmt.Sprint("--port=", port), "--host=127.0.0.1", fmt.Sprint("--health-addr=127.0.0.1:", freePort(t)),
		fmt.Sprint("--prometheus-port=", freePort(t)), "--exempt-namespace=gatekeeper-system",
		"--operation=webhook", "--operation=mutation-webhook", "--operation=mutation-controller", "--operation=generate",
		"--operation=status", "--operation=mutation-status")
	// The program makes its certificate and keeps it in a secret, from which a kubelet fills the folder.
	eventually(t, unhurried, "Gatekeeper has a certificate", func(context.Context) error {
		for _, name := range []string{"ca.crt", "tls.crt", "tls.key"} {
			path := "{.data." + strings.ReplaceAll(name, ".", `\.`) + "}"
			content, err := base64.StdEncoding.DecodeString(
				k.jsonpath(t, path, "secret", "gatekeeper-webhook-server-cert", "-n", "gatekeeper-system"))
			if err != nil || len(content) == 0 {
				return fmt.Errorf("%s: %d bytes, %v", name, len(content), err)
			}
			writePEM(t, filepath.Join(certificates, name), content)
		}
		return nil
	})
	const template = `{"apiVersion":"templates.gatekeeper.sh/v1","kind":"ConstraintTemplate","metadata":{"name":"needslabel"},` +
		`"spec":{"crd":{"spec":{"names":{"kind":"NeedsLabel"},"validation":{"openAPIV3Schema":{"type":"object","properties":` +
		`{"label":{"type":"string"}}}}}},"targets":[{"target":"admission.k8s.gatekeeper.sh","rego":"package needslabel\n` +
		`violation[{\"msg\": msg}] {\n  not input.review.object.metadata.labels[input.parameters.label]\n` +
		`  msg := sprintf(\"the label %s is missing\", [input.parameters.label])\n}"}]}}`
	const constraint = `{"apiVersion":"constraints.gatekeeper.sh/v1beta1","kind":"NeedsLabel","metadata":{"name":"owner"},"spec":{` +
		`"match":{"kinds":[{"apiGroups":[""],"kinds":["Namespace"]}]},"parameters":{"label":"owner"}}}`
	const assign = `{"apiVersion":"mutations.gatekeeper.sh/v1","kind":"AssignMetadata","metadata":{"name":"team"},"spec":{` +
		`"match":{"scope":"Namespaced","kinds":[{"apiGroups":["*"],"kinds":["Pod"]}]},"location":"metadata.labels.team",` +
		`"parameters":{"assign":{"value":"red"}}}}`
	for _, object := range []string{template, constraint, assign} {
		eventually(t, unhurried, "Gatekeeper's objects are admitted", func(context.Context) error {
			if a := k.try(t, object, "apply", "-f", "-"); a.code != 0 {
				return fmt.Errorf("%s", a.err)
			}
			return nil
		})
	}
	eventually(t, unhurried, "the constraint refuses a namespace", func(context.Context) error {
		a := k.try(t, "", "create", "namespace", "bare", "--dry-run=server")
		const words = `admission webhook "validation.gatekeeper.sh" denied the request: [owner] the label owner is missing`
		if a.code == 0 || !strings.Contains(a.err, words) {
			return fmt.Errorf("exit %d %s%s", a.code, a.out, a.err)
		}
		return nil
	})
	k.runWith(t, `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"owned","labels":{"owner":"me"}}}`,
		"create", "-f", "-")
	const pod = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"i"}],` +
		`"serviceAccountName":"default"}}`
	k.runWith(t, `{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"default"}}`, "apply", "-n", "owned", "-f", "-")
	eventually(t, unhurried, "pods get the label", func(context.Context) error {
		a := k.try(t, pod, "create", "-n", "owned", "-f", "-", "--dry-run=server", "-o", "jsonpath={.metadata.labels.team}")
		if a.code != 0 || a.out != "red" {
			return fmt.Errorf("exit %d %s%s", a.code, a.out, a.err)
		}
		return nil
	})
}
