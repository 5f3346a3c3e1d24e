package e2e

import (
	"context"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// aggregatedRoles checks that users who may view a namespace get the rights to widgets, by the controller that
// aggregates roles.
func (j *joined) aggregatedRoles(t *testing.T) {
	viewer := j.kubectl(t, j.user(t, "viewer", "staff"))
	viewer.fails(
		t, 1,
		`widgets.e2e.example.com is forbidden: User "viewer" cannot list resource "widgets" in API group `+
			`"e2e.example.com" in the namespace "shop"`,
		words("get widgets -n shop")...,
	)
	j.k.run(t, words("create rolebinding viewers -n shop --clusterrole=view --group=staff")...)
	eventually(t, unhurried, "a viewer sees widgets", func(context.Context) error {
		if a := viewer.try(t, "", words("get widgets -n shop -o name")...); a.code != 0 ||
			!strings.Contains(a.out, "/counted") {
			return fmt.Errorf("exit %d: %s%s", a.code, a.out, a.err)
		}
		return nil
	})
	viewer.run(t, words("get pods -n shop")...)
	viewer.fails(t, 1, "Forbidden", words("get secrets -n shop")...)
	viewer.fails(t, 1, "Forbidden", words("get pods -n default")...)
	viewer.fails(t, 1, "Forbidden", words("delete widget counted -n shop")...)
}

// secretTokens checks that a Secret that names a service account gets a token, which is accepted until the Secret is
// deleted.
func (j *joined) secretTokens(t *testing.T) {
	j.k.run(t, words("create serviceaccount builder -n shop")...)
	j.k.runWith(t,
		`{"apiVersion":"v1","kind":"Secret","metadata":{"name":"builder",`+
			`"annotations":{"kubernetes.io/service-account.name":"builder"}},"type":"kubernetes.io/service-account-token"}`,
		"create", "-n", "shop", "-f", "-")
	var encoded string
	eventually(t, unhurried, "the secret has a token", func(context.Context) error {
		if encoded = j.k.jsonpath(t, "{.data.token}", "secret", "builder", "-n", "shop"); encoded == "" {
			return fmt.Errorf("it has none")
		}
		return nil
	})
	token, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		t.Fatal(err)
	}
	builder := j.bearer(t, "builder", string(token))
	j.kubectl(t, builder).says(
		t, words("auth whoami"), `^Username +system:serviceaccount:shop:builder$`, `system:serviceaccounts:shop`,
	)
	j.k.run(t, words("delete serviceaccount builder -n shop")...)
	eventually(t, unhurried, "the secret goes with the account, and the token lets nobody in",
		func(ctx context.Context) error {
			status, body, err := builder.call(ctx, http.MethodGet, "/api", "", "")
			if err == nil && status != http.StatusUnauthorized {
				err = fmt.Errorf("%d %s", status, body)
			}
			if a := j.k.try(t, "", words("get secret builder -n shop")...); err == nil && !strings.Contains(a.err, "NotFound") {
				err = fmt.Errorf("%s%s", a.out, a.err)
			}
			return err
		})
}

// request makes a key and a certificate request for it.
func request(t *testing.T, name string, groups ...string) (key, csr []byte) {
	t.Helper()
	k := newKey(t)
	der, err := x509.CreateCertificateRequest(
		rand.Reader, &x509.CertificateRequest{Subject: pkix.Name{CommonName: name, Organization: groups}}, k,
	)
	if err != nil {
		t.Fatal(err)
	}
	return keyPEM(t, k), pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
}

// signingRequest is the manifest of a CertificateSigningRequest.
func signingRequest(t *testing.T, name, signer string, csr []byte) string {
	t.Helper()
	object, err := json.Marshal(map[string]any{
		"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest", "metadata": map[string]any{"name": name},
		"spec": map[string]any{"request": csr, "signerName": signer, "usages": []string{"digital signature", "client auth"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return string(object)
}

// issued waits for the certificate of a request and returns the user of the certificate.
func (j *joined) issued(t *testing.T, request, user string, key []byte) *identity {
	t.Helper()
	var cert []byte
	eventually(t, unhurried, request+" is signed", func(context.Context) (err error) {
		cert, err = base64.StdEncoding.DecodeString(j.k.jsonpath(t, "{.status.certificate}", "csr", request))
		if err == nil && len(cert) == 0 {
			err = fmt.Errorf("it is not")
		}
		return err
	})
	return j.identity(t, user, &clientcmdapi.AuthInfo{ClientCertificateData: cert, ClientKeyData: key})
}

// certificates checks that a user requests a certificate, an administrator approves it, and a controller signs it.
func (j *joined) certificates(t *testing.T) {
	asker := j.user(t, "asker")
	ask := j.kubectl(t, asker)
	key, csr := request(t, "jane", "developers")
	manifest := signingRequest(t, "jane", "kubernetes.io/kube-apiserver-client", csr)
	if a := ask.try(t, manifest, "create", "-f", "-"); a.code == 0 ||
		!strings.Contains(a.err, `User "asker" cannot create resource "certificatesigningrequests"`) {
		t.Errorf("a request of somebody who may not: %+v", a)
	}
	j.k.run(t, words("create clusterrole asking --verb=create,get --resource=certificatesigningrequests")...)
	j.k.run(t, words("create clusterrolebinding asking --clusterrole=asking --user=asker")...)
	eventually(t, unhurried, "the request is made", func(context.Context) error {
		if a := ask.try(t, manifest, "create", "-f", "-"); a.code != 0 {
			return fmt.Errorf("%s", a.err)
		}
		return nil
	})
	j.k.says(t, words("get csr jane"), `^jane +\S+ +kubernetes.io/kube-apiserver-client +asker +<none> +Pending`)
	ask.fails(t, 1, "Forbidden", words("certificate approve jane")...)
	j.k.run(t, words("create clusterrole approving --verb=update,patch --resource=certificatesigningrequests/approval")...)
	j.k.run(t, words("create clusterrolebinding approving --clusterrole=approving --user=asker")...)
	eventually(t, unhurried, "who may not act for the signer does not approve", func(context.Context) error {
		a := ask.try(t, "", words("certificate approve jane")...)
		if a.code == 0 {
			t.Fatal("it is approved")
		}
		if !strings.Contains(
			a.err, `user not permitted to approve requests with signerName "kubernetes.io/kube-apiserver-client"`,
		) {
			return fmt.Errorf("%s", a.err)
		}
		return nil
	})
	j.k.run(t, words("certificate approve jane")...)
	jane := j.issued(t, "jane", "jane", key)
	j.kubectl(t, jane).says(t, words("auth whoami"), `^Username +jane$`, `^Groups +\[developers system:authenticated\]$`)

	_, csr = request(t, "eve", "system:masters")
	a := j.k.try(t, signingRequest(t, "eve", "kubernetes.io/kube-apiserver-client", csr), "create", "-f", "-")
	if a.code == 0 || !strings.Contains(a.err, "system:masters") {
		t.Errorf("a request for a certificate of administrators: %+v", a)
	}
	_, csr = request(t, "joe")
	j.k.runWith(t, signingRequest(t, "joe", "kubernetes.io/kube-apiserver-client", csr), "create", "-f", "-")
	j.k.run(t, words("certificate deny joe")...)
	j.k.says(t, words("get csr joe"), `Denied$`)
}

// bootstrapToken checks that a node with a bootstrap token gets its certificate without the approval of an
// administrator.
func (j *joined) bootstrapToken(t *testing.T) {
	const id, secret = "abcdef", "0123456789abcdef"
	j.k.run(
		t,
		words("create clusterrolebinding join-nodes --clusterrole=system:node-bootstrapper --group=system:bootstrappers")...,
	)
	j.k.run(
		t,
		words(
			"create clusterrolebinding approve-nodes "+
				"--clusterrole=system:certificates.k8s.io:certificatesigningrequests:nodeclient --group=system:bootstrappers",
		)...,
	)
	j.k.run(t, words("create secret generic bootstrap-token-"+id+" -n kube-system --type=bootstrap.kubernetes.io/token"+
		" --from-literal=token-id="+id+" --from-literal=token-secret="+secret+
		" --from-literal=usage-bootstrap-authentication=true --from-literal=usage-bootstrap-signing=true"+
		" --from-literal=expiration="+time.Now().Add(time.Hour).UTC().Format(time.RFC3339))...)
	joiner := j.bearer(t, "joiner", id+"."+secret)
	var k kubectl
	eventually(t, unhurried, "the token lets in", func(context.Context) error {
		k = j.kubectl(t, joiner)
		if a := k.try(t, "", words("auth whoami")...); !strings.Contains(a.out, "system:bootstrap:"+id) ||
			!strings.Contains(a.out, "system:bootstrappers") {
			return fmt.Errorf("%+v", a)
		}
		return nil
	})
	key, csr := request(t, "system:node:n9", "system:nodes")
	k.runWith(t, signingRequest(t, "n9", "kubernetes.io/kube-apiserver-client-kubelet", csr), "create", "-f", "-")
	node := j.issued(t, "n9", "system:node:n9", key)
	j.kubectl(t, node).says(t, words("auth whoami"), `^Username +system:node:n9$`, `system:nodes`)
	k.fails(t, 1, "Forbidden", words("get nodes")...)
	k.fails(t, 1, "Forbidden", words("get secrets -n kube-system")...)

	j.k.run(t, words("create configmap cluster-info -n kube-public --from-literal=kubeconfig=here")...)
	eventually(t, unhurried, "the cluster's description is signed", func(context.Context) error {
		if j.k.jsonpath(t, "{.data.jws-kubeconfig-"+id+"}", "configmap", "cluster-info", "-n", "kube-public") == "" {
			return fmt.Errorf("it is not")
		}
		return nil
	})
	expired := `{"stringData":{"expiration":"` + time.Now().Add(-time.Hour).UTC().Format(time.RFC3339) + `"}}`
	j.k.run(t, "patch", "secret", "bootstrap-token-"+id, "-n", "kube-system", "-p", expired)
	eventually(t, unhurried, "an expired token lets nobody in and is cleaned up", func(context.Context) error {
		a, b := k.try(t, "", words("auth whoami")...), j.k.try(
			t, "", "get", "secret", "bootstrap-token-"+id, "-n", "kube-system",
		)
		if a.code == 0 || !strings.Contains(b.err, "NotFound") {
			return fmt.Errorf("%+v, %+v", a, b)
		}
		return nil
	})
}

// reviews checks what kubectl shows to users about themselves.
func (j *joined) reviews(t *testing.T) {
	scheduler := j.kubectl(t, j.users["kube-scheduler"])
	scheduler.says(t, words("auth whoami"), `^Username +system:kube-scheduler$`, `^Groups +\[system:authenticated\]$`)
	scheduler.says(t, words("auth can-i --list"), `^Resources +Non-Resource URLs +Resource Names +Verbs$`,
		`^bindings +\[\] +\[\] +\[create\]$`, `^pods/binding +\[\] +\[\] +\[create\]$`,
		`^leases.coordination.k8s.io +\[\] +\[kube-scheduler\] +\[get`,
		`^ +\[/healthz\] +\[\] +\[get\]`, `^selfsubjectreviews.authentication.k8s.io +\[\] +\[\] +\[create\]$`)
	for question, want := range map[string]string{
		"create pods --subresource=binding": "yes", "delete secrets": "no",
		"update leases.coordination.k8s.io/kube-scheduler -n kube-system": "yes",
		"update leases.coordination.k8s.io/kube-scheduler -n default":     "yes",
		"update leases.coordination.k8s.io/other -n default":              "no", "get /healthz": "yes",
		"get /debug/pprof": "no",
		"list pods -A":     "yes",
	} {
		a := scheduler.try(t, "", append(words("auth can-i"), words(question)...)...)
		if strings.TrimSpace(a.out) != want || a.code != map[string]int{"yes": 0, "no": 1}[want] {
			t.Errorf("can-i %s: %+v, want %s", question, a, want)
		}
	}
	j.k.says(
		t, words("auth can-i delete nodes --as system:kube-controller-manager --quiet=false --as-group=system:masters"),
		`^yes$`,
	)
	j.k.fails(t, 1, "", words("auth can-i delete nodes --as system:kube-controller-manager")...)

	j.k.run(t, words("apply -n shop -f testdata/joins/pods.yaml")...)
	token := strings.TrimSpace(
		j.k.run(t, words("create token other -n shop --bound-object-kind Pod --bound-object-name other --duration 15m")...),
	)
	bound := j.kubectl(t, j.bearer(t, "other", token))
	bound.says(t, words("auth whoami"), `^Username +system:serviceaccount:shop:other$`,
		`authentication.kubernetes.io/pod-name +\[other\]`,
		`authentication.kubernetes.io/node-name +\[w1\]`, `authentication.kubernetes.io/credential-id +\[JTI=`)
	bound.fails(t, 1, "Forbidden", words("get pods -n shop")...)
	elsewhere := strings.TrimSpace(j.k.run(t, words("create token other -n shop --audience elsewhere")...))
	j.kubectl(t, j.bearer(t, "elsewhere", elsewhere)).fails(t, 1, "Unauthorized", words("auth whoami")...)
	j.k.run(t, words("delete pod other -n shop --force --grace-period=0")...)
	eventually(t, unhurried, "the token goes with its pod", func(context.Context) error {
		if a := bound.try(t, "", words("auth whoami")...); a.code == 0 {
			return fmt.Errorf("it lets in: %s", a.out)
		}
		return nil
	})
	j.k.run(t, words("apply -n shop -f testdata/joins/pods.yaml")...)
}

// access is a request and whether it is allowed.
type access struct {
	method, path, body string
	allowed            bool
}

// The bodies of requests.
const (
	somePod     = `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"p"},"spec":{"containers":[{"name":"c","image":"c"}]}}`
	someSecret  = `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s"}}`
	someAccount = `{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"a"}}`
	someNode    = `{"apiVersion":"v1","kind":"Node","metadata":{"name":"n"}}`
	someBinding = `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRoleBinding","metadata":{"name":"b"},` +
		`"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"cluster-admin"},` +
		`"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"u"}]}`
	someLabels = `{"metadata":{"labels":{"a":"b"}}}`
	someToken  = `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{"boundObjectRef":{"apiVersion":"v1","kind":"Pod","name":"own"}}}`
	anyToken   = `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{}}`
	review     = `{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}`
)

const (
	shopPath   = "/api/v1/namespaces/shop"
	rolesPath  = "/apis/rbac.authorization.k8s.io/v1/"
	leasesPath = "/apis/coordination.k8s.io/v1/namespaces/"
)

// accesses returns requests of each user; none of them changes anything.
var accesses = map[string][]access{
	"system:kube-scheduler": {
		{"GET", "/api/v1/pods", "", true},
		{"DELETE", shopPath + "/pods/other", "", true},
		{"GET", shopPath + "/secrets/own", "", false},
		{"GET", "/api/v1/secrets", "", false},
		{"DELETE", shopPath + "/secrets/own", "", false},
		{"POST", shopPath + "/pods", somePod, false},
		{"PATCH", "/api/v1/nodes/w1", someLabels, false},
		{"PATCH", "/api/v1/nodes/w1/status", someLabels, false},
		{"GET", leasesPath + "kube-system/leases/kube-scheduler", "", true},
		{"DELETE", leasesPath + "kube-system/leases/kube-controller-manager", "", false},
		{"PATCH", leasesPath + "kube-system/leases/kube-controller-manager", someLabels, false},
		{"POST", rolesPath + "clusterrolebindings", someBinding, false},
	},
	"system:kube-controller-manager": {
		{"GET", "/api/v1/secrets", "", true},
		{"POST", shopPath + "/serviceaccounts", someAccount, true},
		{"POST", "/api/v1/namespaces/kube-system/serviceaccounts/deployment-controller/token", anyToken, true},
		{"DELETE", shopPath + "/pods/own", "", false},
		{"POST", shopPath + "/pods", somePod, false},
		{"PATCH", "/api/v1/nodes/w1", someLabels, false},
		{"PATCH", rolesPath + "clusterroles/view", someLabels, false},
		{"POST", rolesPath + "clusterrolebindings", someBinding, false},
		{"DELETE", "/api/v1/namespaces/shop", "", false},
	},
	"system:serviceaccount:kube-system:deployment-controller": {
		{"GET", "/apis/apps/v1/deployments", "", true},
		{"GET", "/api/v1/pods", "", true},
		{"POST", shopPath + "/pods", somePod, false},
		{"GET", "/api/v1/secrets", "", false},
		{"DELETE", "/apis/apps/v1/namespaces/shop/deployments/web", "", false},
	},
	"system:serviceaccount:kube-system:job-controller": {
		{"POST", shopPath + "/pods", somePod, true},
		{"GET", "/apis/apps/v1/deployments", "", false},
		{"POST", shopPath + "/secrets", someSecret, false},
	},
	"system:serviceaccount:kube-system:clusterrole-aggregation-controller": {
		{"PATCH", rolesPath + "clusterroles/view", someLabels, true},
		{"POST", rolesPath + "clusterrolebindings", someBinding, false},
		{"GET", "/api/v1/pods", "", false},
	},
	"system:serviceaccount:kube-system:kwok-controller": {
		{"GET", "/api/v1/nodes", "", true},
		{"PATCH", shopPath + "/pods/own/status", someLabels, true},
		{"POST", shopPath + "/pods", somePod, false},
		{"DELETE", "/api/v1/nodes/w1", "", false},
		{"POST", "/api/v1/nodes", someNode, false},
		{"GET", shopPath + "/secrets/own", "", false},
	},
	"system:node:n1": {
		{"GET", "/api/v1/nodes/n1", "", true},
		{"GET", "/api/v1/nodes/w1", "", false},
		{"GET", "/api/v1/nodes", "", false},
		{"GET", "/api/v1/nodes?fieldSelector=metadata.name%3Dn1", "", true},
		{"GET", "/api/v1/nodes?fieldSelector=metadata.name%3Dw1", "", false},
		{"GET", "/api/v1/pods?fieldSelector=spec.nodeName%3Dn1", "", true},
		{"GET", "/api/v1/pods?fieldSelector=spec.nodeName%3Dw1", "", false},
		{"GET", "/api/v1/pods", "", false},
		{"GET", shopPath + "/pods/own", "", true},
		{"GET", shopPath + "/pods/other", "", false},
		{"PATCH", shopPath + "/pods/own/status", someLabels, true},
		{"GET", shopPath + "/secrets/own", "", true},
		{"GET", shopPath + "/secrets?fieldSelector=metadata.name%3Down", "", true},
		{"GET", shopPath + "/secrets/other", "", false},
		{"GET", shopPath + "/secrets?fieldSelector=metadata.name%3Dother", "", false},
		{"GET", shopPath + "/secrets", "", false},
		{"GET", "/api/v1/secrets", "", false},
		{"PATCH", shopPath + "/secrets/own", someLabels, false},
		{"DELETE", shopPath + "/secrets/own", "", false},
		{"GET", shopPath + "/configmaps/own", "", true},
		{"GET", shopPath + "/configmaps/other", "", false},
		{"GET", "/api/v1/namespaces/kube-system/configmaps/kube-root-ca.crt", "", false},
		{"POST", shopPath + "/serviceaccounts/own/token", someToken, true},
		{"POST", shopPath + "/serviceaccounts/other/token", anyToken, false},
		{"PATCH", leasesPath + "kube-node-lease/leases/n1", someLabels, true},
		{"PATCH", leasesPath + "kube-node-lease/leases/w1", someLabels, false},
		{"GET", leasesPath + "kube-node-lease/leases/w1", "", false},
		{"GET", leasesPath + "kube-node-lease/leases", "", false},
		{"GET", leasesPath + "kube-system/leases/kube-scheduler", "", false},
		{"POST", rolesPath + "clusterrolebindings", someBinding, false},
		{"GET", "/apis/apps/v1/deployments", "", false},
	},
	"somebody": {
		{"GET", "/api", "", true},
		{"GET", "/apis/apps/v1", "", true},
		{"GET", "/version", "", true},
		{"GET", "/metrics", "", false},
		{"POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", review, true},
		{"GET", "/api/v1/pods", "", false},
		{"GET", shopPath + "/configmaps/own", "", false},
		{"GET", "/api/v1/namespaces", "", false},
		{"POST", shopPath + "/pods", somePod, false},
		{"POST", rolesPath + "clusterrolebindings", someBinding, false},
	},
	"system:anonymous": {
		{"GET", "/version", "", true},
		{"GET", "/livez", "", true},
		{"GET", "/api", "", false},
		{"GET", "/api/v1/pods", "", false},
		{"POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", review, false},
	},
}

// mayNot checks that each user may do what its role allows, and nothing else.
func (j *joined) mayNot(t *testing.T) {
	j.k.run(t, words("wait pod/own pod/other -n shop --for=condition=Ready --timeout=30s")...)
	users := map[string]*identity{
		"somebody": j.user(t, "somebody"), "system:anonymous": j.identity(t, "system:anonymous", &clientcmdapi.AuthInfo{}),
	}
	for _, u := range j.users {
		users[u.name] = u
	}
	for name := range accesses {
		if account, ok := strings.CutPrefix(name, "system:serviceaccount:kube-system:"); ok {
			users[name] = j.account(t, "kube-system", account)
		}
	}
	for name, list := range accesses {
		user := users[name]
		for _, a := range list {
			status, body, err := user.call(t.Context(), a.method, dry(a), contentType(a), a.body)
			switch {
			case err != nil:
				t.Errorf("%s: %s %s: %v", name, a.method, a.path, err)
			case a.allowed && status/100 != 2:
				t.Errorf("%s may not %s %s: %d %s", name, a.method, a.path, status, body)
			case !a.allowed && (status != http.StatusForbidden ||
				!strings.Contains(body, `forbidden: User \"`+name+`\" cannot `)):
				t.Errorf("%s: %s %s: %d %s, want 403", name, a.method, a.path, status, body)
			}
		}
	}
	stranger := j.bearer(t, "stranger", "nobody-knows-this-token")
	if status, body, err := stranger.call(t.Context(), "GET", "/version", "", ""); err != nil ||
		status != http.StatusUnauthorized {
		t.Errorf("a token that nobody knows: %d %s %v", status, body, err)
	}
}

// dry is the path of a request that changes nothing.
func dry(a access) string {
	if a.method == http.MethodGet || strings.HasSuffix(a.path, "reviews") {
		return a.path
	}
	return a.path + "?dryRun=All"
}

func contentType(a access) string {
	if a.method == http.MethodPatch {
		return mergeType
	}
	return jsonType
}
