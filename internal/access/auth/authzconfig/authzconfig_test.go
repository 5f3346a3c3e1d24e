package authzconfig

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const head = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthorizationConfiguration\nauthorizers:\n"

// hook returns the configuration of a valid webhook. replace has pairs of an old text and its replacement.
func hook(t *testing.T, replace ...string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	text := `- type: Webhook
  name: hook
  webhook:
    timeout: 3s
    subjectAccessReviewVersion: v1
    matchConditionSubjectAccessReviewVersion: v1
    failurePolicy: Deny
    connectionInfo:
      type: KubeConfigFile
      kubeConfigFile: FILE
    matchConditions:
    - expression: request.user != 'x'
`
	return strings.NewReplacer(append(replace, "FILE", file)...).Replace(text)
}

func TestDefaults(t *testing.T) {
	c, err := Load([]byte(head+hook(t)+"- type: RBAC\n  name: rbac\n"), []string{"RBAC"})
	if err != nil {
		t.Fatal(err)
	}
	w := c.Authorizers[0].Webhook
	if w.AuthorizedTTL.Duration != 5*time.Minute || w.UnauthorizedTTL.Duration != 30*time.Second ||
		!*w.CacheAuthorizedRequests || !*w.CacheUnauthorizedRequests {
		t.Errorf("%+v", w)
	}
	if conditions, errs := Conditions(w, nil); conditions == nil || len(errs) > 0 {
		t.Errorf("conditions %v %v", conditions, errs)
	}
}

func TestErrorsNameTheField(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"nothing": {"", "authorizers: Required value: at least one authorization mode must be defined"},
		"another kind": {"apiVersion: v1\nkind: Pod\n",
			"failed to load AuthorizationConfiguration from file: expected AuthorizationConfiguration"},
		"unknown member": {head + "- type: RBAC\n  name: rbac\n  nope: 1\n", "strict decoding error"},
		"no type":        {head + "- name: a\n", "authorizers[0].type: Required value"},
		"unknown type": {head + "- type: Robot\n  name: a\n",
			`authorizers[0].type: Unsupported value: "Robot": supported values: "ABAC", "AlwaysAllow", "AlwaysDeny", ` +
				`"Node", "RBAC", "Webhook"`},
		"twice": {head + "- {type: RBAC, name: rbac}\n- {type: RBAC, name: rbac}\n",
			`authorizers[1].type: Duplicate value: "RBAC"`},
		"no name": {head + "- type: RBAC\n", "authorizers[0].name: Required value"},
		"a bad name": {head + hook(t, "name: hook", "name: Ho ok"),
			`authorizers[0].name: Invalid value: "Ho ok": authorizer name is invalid: `},
		"same names":   {head + hook(t) + hook(t), `authorizers[1].name: Duplicate value: "hook"`},
		"another name": {head + "- {type: RBAC, name: roles}\n", "expected name rbac for authorizer RBAC instead of roles"},
		"a webhook of RBAC": {head + "- {type: RBAC, name: rbac, webhook: {}}\n",
			`authorizers[0].webhook: Invalid value: "non-null": may only be specified when type=Webhook`},
		"no webhook": {head + "- {type: Webhook, name: hook}\n",
			"authorizers[0].webhook: Required value: required when type=Webhook"},
		"no timeout": {head + hook(t, "timeout: 3s", "timeout: 0s"), "authorizers[0].timeout: Required value"},
		"a long timeout": {head + hook(t, "timeout: 3s", "timeout: 31s"),
			`authorizers[0].timeout: Invalid value: "31s": must be > 0s and <= 30s`},
		"a negative time": {head + hook(t, "timeout: 3s", "timeout: 3s\n    authorizedTTL: -1s"),
			`authorizers[0].authorizedTTL: Invalid value: "-1s": must be > 0s`},
		"no version": {head + hook(t, "subjectAccessReviewVersion: v1\n    m", "m"),
			"authorizers[0].subjectAccessReviewVersion: Required value"},
		"an unknown version": {head +
			hook(t, "    subjectAccessReviewVersion: v1\n", "    subjectAccessReviewVersion: v2\n"),
			`supported values: "v1", "v1beta1"`},
		"conditions of none": {head + hook(t, "    matchConditionSubjectAccessReviewVersion: v1\n", ""),
			"required if match conditions are specified"},
		"no failure policy": {head + hook(t, "    failurePolicy: Deny\n", ""),
			"authorizers[0].failurePolicy: Required value"},
		"a failure policy": {head + hook(t, "failurePolicy: Deny", "failurePolicy: Allow"),
			`supported values: "NoOpinion", "Deny"`},
		"no connection": {head + hook(t, "type: KubeConfigFile", "type: ''"),
			"authorizers[0].connectionInfo.type: Required value"},
		"a relative file": {head + hook(t, "kubeConfigFile: FILE", "kubeConfigFile: x"), "must be an absolute path"},
		"a missing file":  {head + hook(t, "kubeConfigFile: FILE", "kubeConfigFile: /nope/nope"), "error loading file"},
		"a directory":     {head + hook(t, "kubeConfigFile: FILE", "kubeConfigFile: /"), "must be a regular file"},
		"a file in a cluster": {head + hook(t, "type: KubeConfigFile", "type: InClusterConfig"),
			"can only be set when type=KubeConfigFile"},
		"a condition": {head + hook(t, "request.user != 'x'", "request.nope"),
			"authorizers[0].matchConditions[0].expression: Invalid value"},
		"a missing type": {head + "- {type: AlwaysDeny, name: alwaysdeny}\n", "missing required types: [Node RBAC]"},
	} {
		var required []string
		if name == "a missing type" {
			required = []string{"RBAC", "Node"}
		}
		if _, err := Load([]byte(c.text), required); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
