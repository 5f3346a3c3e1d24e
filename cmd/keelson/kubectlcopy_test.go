package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/server/servertest"
)

const (
	shop    = "/api/v1/namespaces/shop"
	widgets = "/apis/example.com/v1/namespaces/shop/widgets"
)

// copiedServer is a server whose copy has every change that it has answered.
type copiedServer struct {
	*servertest.Server
	t    *testing.T
	copy string
	flag []string // that the commands need to read the copy
}

// startCopied starts a server with a copy and some objects.
func startCopied(t *testing.T, change func(*config.Config)) *copiedServer {
	c := servertest.Default("namespace-controller")
	s := &copiedServer{t: t, copy: filepath.Join(t.TempDir(), "copy")}
	c.Storage.Backup.To, c.Storage.Backup.Mode = s.copy, config.BackupSync
	change(&c.Config)
	s.Server = servertest.Start(t, c)
	s.DefineWidgets()
	s.Create("/api/v1/namespaces", `{"metadata":{"name":"shop"}}`)
	s.Create(shop+"/configmaps", `{"metadata":{"name":"settings","labels":{"app":"shop"}},"data":{"v":"1"}}`)
	s.Create(shop+"/secrets", `{"metadata":{"name":"password","labels":{"app":"shop"}},"stringData":{"p":"x"}}`)
	s.Create("/apis/apps/v1/namespaces/shop/deployments", `{"metadata":{"name":"web"},"spec":{"selector":{"matchLabels":{"app":"web"}},
		"template":{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"name":"c","image":"i"}]}}}}`)
	s.Create(shop+"/configmaps", `{"metadata":{"name":"of-web","ownerReferences":[{"apiVersion":"apps/v1","kind":"Deployment","name":"web",
		"uid":"`+string(s.Metadata("/apis/apps/v1/namespaces/shop/deployments/web").UID)+`"}]}}`)
	s.Create(widgets, `{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w","labels":{"app":"shop"}},"spec":{"a":1}}`)
	return s
}

// kubeconfigOf returns a kubeconfig for a server, with the token of a user if there is one, or of the administrator.
func kubeconfigOf(t *testing.T, s *servertest.Server, token string) string {
	content := string(s.Kubeconfig())
	if token != "" {
		content = regexp.MustCompile(`client-certificate-data: .*`).ReplaceAllString(content, "token: "+token)
		content = regexp.MustCompile(`client-key-data: .*`).ReplaceAllString(content, "")
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// expect runs `kubectl history` out of the copy, on the server of a kubeconfig, and checks that it prints the lines. A line that begins
// with an exclamation mark must not be there. It fails if one of the lines begins with "error: ".
func (s *copiedServer) expect(kubeconfig, line string, want ...string) {
	s.t.Helper()
	args := append(append([]string{"kubectl-history"}, strings.Fields(line)...), "--from", s.copy, "--kubeconfig", kubeconfig)
	out, errOut, code := keelson(append(args, s.flag...)...)
	lines := "\n" + out + strings.ReplaceAll(errOut, "keelson: ", "error: ")
	fails := 0
	for _, w := range want {
		text, absent := strings.CutPrefix(w, "!")
		if strings.Contains(lines, "\n"+text) == absent {
			s.t.Errorf("%s prints%s\nwant %q", line, lines, w)
		}
		if strings.HasPrefix(text, "error: ") && !absent {
			fails = 1
		}
	}
	if code != fails {
		s.t.Errorf("%s: exit code %d%s", line, code, lines)
	}
}

// data returns the data of a ConfigMap.
func data(s *servertest.Server, path string) string {
	var o struct{ Data map[string]string }
	if err := json.Unmarshal([]byte(s.Get(path)), &o); err != nil {
		return err.Error()
	}
	return fmt.Sprint(o.Data)
}

// emptyTemporary makes an empty directory the one of temporary files. When the test ends, it must be empty again.
func emptyTemporary(t *testing.T) string {
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	t.Cleanup(func() {
		if names := entries(t, dir); len(names) > 0 {
			t.Errorf("left behind: %q", names)
		}
	})
	return dir
}

// TestUndeleteFromCopy brings objects back out of a copy: into the server that has made it, and into a new one.
func TestUndeleteFromCopy(t *testing.T) {
	emptyTemporary(t)
	s := startCopied(t, func(*config.Config) {})
	then := s.Metadata(widgets + "/w").ResourceVersion
	s.Patch(shop+"/configmaps/settings", `{"data":{"v":"2"}}`)
	s.Do(http.MethodDelete, shop+"/configmaps/settings", "")

	own := kubeconfigOf(t, s.Server, "")
	s.expect(own, "undelete -n shop cm settings", "configmap/settings would be created\n", "1 would be created, 0 skipped, 0 refused.")
	s.Gone(shop + "/configmaps/settings")
	s.expect(own, "undelete -n shop cm settings --yes", "The copy is read as of 20", "configmap/settings created\n")
	if got := data(s.Server, shop+"/configmaps/settings"); got != "map[v:2]" {
		t.Errorf("it comes back with %s", got)
	}
	s.expect(own, "undelete ns shop", "namespace/shop skipped: an object of this name exists\n", "0 would be created, ")
	s.Do(http.MethodDelete, shop+"/configmaps/settings", "")
	s.expect(own, "undelete -n shop cm settings --as-of "+then+" --yes", "configmap/settings created\n")
	if got := data(s.Server, shop+"/configmaps/settings"); got != "map[v:1]" {
		t.Errorf("it comes back with %s", got)
	}
	s.Patch(shop+"/configmaps/settings", `{"data":{"v":"9"}}`)
	s.expect(own, "revert -n shop cm settings --as-of "+then+" --yes", "-  v: \"9\"\n", "+  v: \"1\"\n", "configmap/settings reverted\n")
	s.expect(own, "revert -n shop configmaps -l app=shop --yes", "configmap/settings skipped: it is as it was\n")
	if got := data(s.Server, shop+"/configmaps/settings"); got != "map[v:1]" {
		t.Errorf("it was reverted to %s", got)
	}

	other := servertest.Start(t, servertest.Default())
	to := kubeconfigOf(t, other, "")
	const needsDefinition = "widget.example.com/w refused: the server does not have widgets.example.com in version v1; " +
		"if it is a custom resource, bring back its definition first: undelete customresourcedefinition widgets.example.com\n"
	s.expect(to, "undelete ns shop", "namespace/shop would be created\n", "secret/password would be created\n", needsDefinition, "error: 1 refused\n")
	s.expect(to, "undelete ns shop --yes", "namespace/shop created\n", "secret/password created\n", "deployment.apps/web created\n",
		"configmap/of-web created\n", needsDefinition, "error: 1 refused\n")
	owners := other.Metadata(shop + "/configmaps/of-web").OwnerReferences
	if len(owners) != 1 || owners[0].UID != other.Metadata("/apis/apps/v1/namespaces/shop/deployments/web").UID {
		t.Errorf("the owners are %+v", owners)
	}
	if body := other.Get(shop + "/secrets/password"); !strings.Contains(body, `"p":"eA=="`) {
		t.Error(body)
	}
	s.expect(to, "undelete crd widgets.example.com --yes", "customresourcedefinition.apiextensions.k8s.io/widgets.example.com created\n",
		"widget.example.com/w created\n")
	if body := other.Get(widgets + "/w"); !strings.Contains(body, `"a":1`) {
		t.Error(body)
	}
	// The owner exists, under the UID that it has now.
	other.Do(http.MethodDelete, shop+"/configmaps/of-web", "")
	s.expect(to, "undelete -n shop cm of-web --yes", "configmap/of-web created (with the owner Deployment web of now, ")
	if again := other.Metadata(shop + "/configmaps/of-web").OwnerReferences; len(again) != 1 || again[0].UID != owners[0].UID {
		t.Errorf("the owners are %+v", again)
	}
}

// TestUndeleteDefinitionFromCopy brings back custom resources whose definition is not on the server, and perhaps not at the end of the copy.
func TestUndeleteDefinitionFromCopy(t *testing.T) {
	emptyTemporary(t)
	s := startCopied(t, func(*config.Config) {})
	then := s.Metadata(widgets + "/w").ResourceVersion
	other := servertest.Start(t, servertest.Default())
	to := kubeconfigOf(t, other, "")
	other.Create("/api/v1/namespaces", `{"metadata":{"name":"shop"}}`)
	const definition = "customresourcedefinition.apiextensions.k8s.io/widgets.example.com "
	s.expect(to, "undelete -n shop crds,widgets -l !x", definition+"would be created\n", "widget.example.com/w would be created\n")
	s.expect(to, "undelete -n shop crds,widgets -l !x --yes", definition+"created\n", "widget.example.com/w created\n")
	other.Served(widgets + "/w")

	s.Do(http.MethodDelete, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com", "")
	s.Gone("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/widgets.example.com")
	s.expect(to, "undelete -n shop widgets w", "error: as of 20", "!error: widgets")
	s.expect(to, "undelete crd widgets.example.com", "widgets.example.com refused: its definition exists, and was deleted before the end of the copy;",
		"error: 1 refused\n")
	s.expect(to, "undelete crd widgets.example.com --as-of "+then, definition+"skipped: an object of this name exists\n",
		"widget.example.com/w skipped: an object of this name exists\n")
	third := servertest.Start(t, servertest.Default())
	third.Create("/api/v1/namespaces", `{"metadata":{"name":"shop"}}`)
	s.expect(kubeconfigOf(t, third, ""), "undelete crd widgets.example.com --yes", definition+"created\n", "widget.example.com/w created\n")
}

// TestUndeleteFromCopyAsOf checks which state comes back if no time is named, and what is said about an object that is not in the copy.
func TestUndeleteFromCopyAsOf(t *testing.T) {
	emptyTemporary(t)
	s := startCopied(t, func(*config.Config) {})
	to := kubeconfigOf(t, servertest.Start(t, servertest.Default()), "")
	then := s.Metadata(widgets + "/w").ResourceVersion
	s.Create(shop+"/configmaps", `{"metadata":{"name":"held","finalizers":["example.com/x"]}}`)
	s.Do(http.MethodDelete, shop, "")
	s.Gone(shop + "/configmaps/settings")
	s.Create("/api/v1/namespaces/default/configmaps", `{"metadata":{"name":"later"}}`)
	gone := s.Metadata("/api/v1/namespaces/default/configmaps/later").ResourceVersion
	// At the end of the copy the namespace waits for the finalizer, and most of its content is gone.
	s.expect(to, "undelete ns shop", "namespace/shop would be created\n", "configmap/held would be created (without its finalizers example.com/x)\n",
		"configmap/settings would be created\n", "error: 1 refused\n") // the widget
	s.expect(to, "undelete -n shop cm settings --as-of "+gone, `error: configmaps "settings" not found as of 20`)
	s.expect(to, "undelete -n shop cm held --as-of "+then, `error: configmaps "held" not found as of 20`)
	out, errOut, _ := keelson("kubectl-history", "undelete", "-n", "shop", "cm", "settings", "--as-of", "0s", "--from", s.copy, "--kubeconfig", to)
	last := regexp.MustCompile(`; it was deleted at 20[^ ]*, and --as-of (\d+) is its last state\n$`).FindStringSubmatch(errOut)
	if last == nil {
		t.Fatalf("%s%s", out, errOut)
	}
	out, errOut, _ = keelson("kubectl-history", "undelete", "ns", "shop", "--as-of", last[1], "--from", s.copy, "--kubeconfig", to)
	if !strings.Contains(out, "configmap/settings would be created\n") { // whether the widget was gone by then, is not known
		t.Errorf("%s%s", out, errOut)
	}
	for line, want := range map[string]string{
		"undelete cm none":                       "--as-of names another moment, from 20",
		"undelete cm none --as-of 3d":            "the copy does not reach back to that moment: the first one that can be restored is 20",
		"undelete cm none --as-of 99999999":      "the copy ends at revision ",
		"undelete cm none --as-of soon":          `--as-of: "soon" is not a time`,
		"undelete cm -l app=none":                "there were no configmaps with these labels as of 20",
		"revert cm -l app=none":                  "there were no configmaps with these labels as of 20",
		"undelete things x":                      `the server has no resource type "things"`,
		"undelete cm none --from " + t.TempDir(): "there is no copy in ",
		"undelete cm none --from none":           "cannot read the copy in none (--from): ",
		"undelete cm none --from= --identity x":  "--from must name the copy: a directory, or s3://BUCKET/PREFIX",
	} {
		words := strings.Fields(line)
		args := append([]string{"kubectl-history", words[0], "--from", s.copy, "--kubeconfig", to}, words[1:]...) // the last --from counts
		_, errOut, code := keelson(args...)
		if code != 1 || !strings.Contains(errOut, want) {
			t.Errorf("%s: %d %q, want %q", line, code, errOut, want)
		}
	}
}

// TestUndeleteFromCopyNeedsRights checks that a user needs the rights on the server for what comes back.
func TestUndeleteFromCopyNeedsRights(t *testing.T) {
	emptyTemporary(t)
	s := startCopied(t, func(*config.Config) {})
	other := servertest.Start(t, servertest.Default())
	s.Create("/api/v1/namespaces/default/configmaps", `{"metadata":{"name":"settings"}}`)
	s.Create("/api/v1/namespaces/default/secrets", `{"metadata":{"name":"password"}}`)
	other.Create("/apis/rbac.authorization.k8s.io/v1/clusterroles",
		`{"metadata":{"name":"maps"},"rules":[{"apiGroups":[""],"resources":["configmaps"],"verbs":["create","update"]}]}`)
	other.Create("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", `{"metadata":{"name":"maps"},"subjects":[{"kind":"User",
		"apiGroup":"rbac.authorization.k8s.io","name":"jane"}],"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"maps"}}`)
	jane := kubeconfigOf(t, other, other.UserToken("jane", nil))
	other.As("jane").AwaitAccess("create", "configmaps")
	s.expect(jane, "undelete cm settings --yes", "configmap/settings created\n")
	s.expect(jane, "undelete cm settings --yes", "configmap/settings skipped: an object of this name exists\n") // she may not get it
	s.expect(jane, "undelete secret password --yes", `secret/password refused: secrets is forbidden: User "jane" cannot create`,
		"error: 1 refused\n")
	if a := other.Send(http.MethodGet, "/api/v1/namespaces/default/secrets/password", ""); a.Status != http.StatusNotFound {
		t.Errorf("there is a Secret: %s", a.Body)
	}
}

// TestUndeleteFromEncryptedCopy reads a copy that is encrypted, of a server that encrypts Secrets.
func TestUndeleteFromEncryptedCopy(t *testing.T) {
	emptyTemporary(t)
	dir := t.TempDir()
	key, identity := identityFile(t)
	file, recipients := filepath.Join(dir, "encryption.json"), filepath.Join(dir, "recipients")
	for name, content := range map[string]string{
		file: `{"apiVersion":"apiserver.config.k8s.io/v1","kind":"EncryptionConfiguration","resources":[{"resources":["secrets"],` +
			`"providers":[{"secretbox":{"keys":[{"name":"k","secret":"` + base64.StdEncoding.EncodeToString(make([]byte, 32)) + `"}]}}]}]}`,
		recipients: fmt.Sprintln(key),
	} {
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	to := kubeconfigOf(t, servertest.Start(t, servertest.Default()), "")
	for _, keys := range []bool{false, true} {
		s := startCopied(t, func(c *config.Config) {
			c.Storage.EncryptionConfigFile = file
			c.Storage.Backup.RecipientsFile, c.Storage.Backup.Keys = recipients, keys
			c.Storage.Backend, c.Storage.DataDir = config.StorageEmbedded, t.TempDir()
		})
		const undelete = "undelete -n shop secret password"
		s.expect(to, undelete, "error: the copy in "+s.copy+" is encrypted; --identity names the file with its key\n")
		s.flag = []string{"--identity", identity}
		if !keys {
			s.expect(to, undelete, "error: Internal error occurred: unable to transform key ")
			s.expect(to, "undelete ns shop", "configmap/settings would be created\n", "secrets refused: Internal error occurred: unable to transform key ",
				"Values in the copy are encrypted; --encryption-provider-config names the file of this flag of their server.\n", "error: 2 refused\n")
			s.flag = append(s.flag, "--encryption-provider-config", file)
		}
		s.expect(to, "undelete ns shop", "secret/password would be created\n", "error: 1 refused\n")
	}
}

// cancelWriter calls cancel when a text is written to it.
type cancelWriter struct {
	lockedBuffer
	text   string
	cancel func()
}

func (w *cancelWriter) Write(p []byte) (int, error) {
	if strings.Contains(string(p), w.text) {
		w.cancel()
	}
	return w.lockedBuffer.Write(p)
}

// TestUndeleteFromCopyIsEnded checks that nothing of a copy is left on the disk if the program is told to stop, and that nobody else may read it.
func TestUndeleteFromCopyIsEnded(t *testing.T) {
	dir := emptyTemporary(t)
	s := startCopied(t, func(*config.Config) {})
	to := kubeconfigOf(t, servertest.Start(t, servertest.Default()), "")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	errOut := &cancelWriter{text: "The copy is read as of", cancel: func() {
		names := entries(t, dir)
		if len(names) != 1 {
			t.Fatalf("the temporary directory has %q", names)
		}
		info, err := os.Stat(filepath.Join(dir, names[0]))
		if err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%v, %v", info, err)
		}
		cancel()
	}}
	if code := execute(ctx, "keelson", []string{
		"kubectl-history", "undelete", "ns", "shop", "--yes", "--from", s.copy, "--kubeconfig", to,
	}, &lockedBuffer{}, errOut); code != 1 || ctx.Err() == nil {
		t.Errorf("exit code %d: %s", code, errOut)
	}
}
