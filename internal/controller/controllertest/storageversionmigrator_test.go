package controllertest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	migrationv1 "k8s.io/api/storagemigration/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/clock"
	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/controller/storageversionmigrator"
	"github.com/keelson-dev/keelson/internal/machinery/scheme/wire"
	"github.com/keelson-dev/keelson/internal/machinery/wait"
	"github.com/keelson-dev/keelson/internal/server/datadir"
	"github.com/keelson-dev/keelson/internal/server/servertest"
	"github.com/keelson-dev/keelson/internal/server/servertest/apitest"
	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/embedded"
)

const migrationsPath = "/apis/storagemigration.k8s.io/v1/storageversionmigrations"

// migratorConfig returns the settings of a server on a data directory, with the controller or without it.
func migratorConfig(dir string, migrates bool) servertest.Config {
	c := servertest.Default()
	if migrates {
		c = servertest.Default(storageversionmigrator.Name)
	}
	if dir != "" {
		c.Storage.Backend, c.Storage.DataDir = config.StorageEmbedded, dir
	}
	return c
}

// beginMigration creates a migration of a resource.
func beginMigration(s *servertest.Server, name, group, resource string) {
	s.Create(migrationsPath, fmt.Sprintf(`{"metadata":{"name":%q},"spec":{"resource":{"group":%q,"resource":%q}}}`, name, group, resource))
}

// readMigration returns a migration.
func readMigration(t *testing.T, s *servertest.Server, name string) (m migrationv1.StorageVersionMigration) {
	t.Helper()
	if err := json.Unmarshal([]byte(s.Get(migrationsPath+"/"+name)), &m); err != nil {
		t.Fatal(err)
	}
	return m
}

// awaitMigration waits until a migration has ended in a condition, and checks that it is not running any more.
func awaitMigration(t *testing.T, s *servertest.Server, name string, end migrationv1.MigrationConditionType) migrationv1.StorageVersionMigration {
	t.Helper()
	var m migrationv1.StorageVersionMigration
	wait.Seen(t, "the end of the migration "+name, func() (bool, string) {
		m = readMigration(t, s, name)
		return meta.IsStatusConditionTrue(m.Status.Conditions, string(end)) &&
			meta.IsStatusConditionFalse(m.Status.Conditions, string(migrationv1.MigrationRunning)), fmt.Sprint(m.Status)
	})
	running := meta.FindStatusCondition(m.Status.Conditions, string(migrationv1.MigrationRunning))
	if running.Reason != "MigrationCompleted" || running.Message != "Migration completed" {
		t.Errorf("%s: %+v", name, running)
	}
	return m
}

// checkCondition checks the reason and the message of a condition.
func checkCondition(t *testing.T, m *migrationv1.StorageVersionMigration, kind migrationv1.MigrationConditionType, reason, message string) {
	t.Helper()
	c := meta.FindStatusCondition(m.Status.Conditions, string(kind))
	if c == nil || c.Reason != reason || c.Message != message || c.Status != metav1.ConditionTrue {
		t.Errorf("%s: %s is %+v, want %s %s", m.Name, kind, c, reason, message)
	}
}

// storedValues returns the values below a prefix of keys in the store of a server that has stopped, by their keys.
func storedValues(t *testing.T, dir, prefix string) map[string][]byte {
	t.Helper()
	s, err := embedded.Open(embedded.Options{Dir: datadir.StoreDir(dir)})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	found, err := s.Range(t.Context(), storage.RangeRequest{Start: prefix, End: storage.PrefixEnd(prefix)})
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]byte{}
	for _, e := range found.Entries {
		out[strings.TrimPrefix(e.Key, prefix)] = e.Value
	}
	return out
}

// TestMigrationToTheStorageVersion: policies that a server of an older minor has stored in a beta version are stored in v1 afterwards, and an
// object that is stored in v1 already is not written.
func TestMigrationToTheStorageVersion(t *testing.T) {
	const prefix = "/registry/mutatingadmissionpolicies/"
	dir := t.TempDir()
	version := func(name string) string {
		t.Helper()
		e, err := wire.OpenEnvelope(storedValues(t, dir, prefix)[name])
		if err != nil {
			t.Fatal(err)
		}
		return e.APIVersion
	}
	create := func(s *servertest.Server, name string) {
		s.Run(apitest.CreateMutatingPolicy(name, "example.com", "widgets", apitest.ApplyMutation("Object{}"), ""))
	}
	c := migratorConfig(dir, false)
	c.API.EmulatedVersion = "1.36"
	s := servertest.Start(t, c)
	create(s, "old")
	before := s.Get(apitest.MutatingPoliciesPath + "/old")
	servertest.Stop(t, s)
	if got := version("old"); got != "admissionregistration.k8s.io/v1beta1" {
		t.Fatalf("an emulated 1.36 stores %s", got)
	}

	s = servertest.Start(t, migratorConfig(dir, true))
	create(s, "new")
	untouched := s.Metadata(apitest.MutatingPoliciesPath + "/new").ResourceVersion
	beginMigration(s, "policies", "admissionregistration.k8s.io", "mutatingadmissionpolicies")
	m := awaitMigration(t, s, "policies", migrationv1.MigrationSucceeded)
	checkCondition(t, &m, migrationv1.MigrationSucceeded, "StorageVersionMigrationSucceeded", "Migration completed")
	if m.Status.ResourceVersion == "" {
		t.Error("status.resourceVersion is empty")
	}
	after := s.Metadata(apitest.MutatingPoliciesPath + "/old").ResourceVersion
	if got := s.Get(apitest.MutatingPoliciesPath + "/old"); got != strings.Replace(before,
		resourceVersionOf(t, before), after, 1) || after == resourceVersionOf(t, before) {
		t.Errorf("the object has changed:\n%s\n%s", before, got)
	}
	if now := s.Metadata(apitest.MutatingPoliciesPath + "/new").ResourceVersion; now != untouched {
		t.Error("an object was written that is stored as it has to be")
	}
	servertest.Stop(t, s)
	if got := version("old"); got != "admissionregistration.k8s.io/v1" {
		t.Errorf("after the migration the object is stored as %s", got)
	}
}

func resourceVersionOf(t *testing.T, object string) string {
	t.Helper()
	var o metav1.PartialObjectMetadata
	if err := json.Unmarshal([]byte(object), &o); err != nil {
		t.Fatal(err)
	}
	return o.ResourceVersion
}

// encryptionFile writes a configuration of aesgcm keys for secrets, and returns its path.
func encryptionFile(t *testing.T, keys ...string) string {
	t.Helper()
	var list []string
	for _, k := range keys {
		list = append(list, fmt.Sprintf("{name: %s, secret: %s}", k, map[string]string{
			"k1": "AAECAwQFBgcICQoLDA0ODw==", "k2": "Dw4NDAsKCQgHBgUEAwIBAA==",
		}[k]))
	}
	path := filepath.Join(t.TempDir(), "encryption.yaml")
	text := "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n- resources: [secrets]\n" +
		"  providers: [{aesgcm: {keys: [" + strings.Join(list, ", ") + "]}}]\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// secretKey returns the name of the key that a secret is encrypted with.
func secretKey(values map[string][]byte, name string) string {
	rest, _ := bytes.CutPrefix(values["default/"+name], []byte("k8s:enc:aesgcm:v1:"))
	k, _, _ := bytes.Cut(rest, []byte(":"))
	return string(k)
}

// TestMigrationToAnotherKey: after a migration the old key is not needed any more.
func TestMigrationToAnotherKey(t *testing.T) {
	dir := t.TempDir()
	const number = 50
	c := migratorConfig(dir, false)
	c.Storage.EncryptionConfigFile = encryptionFile(t, "k1")
	s := servertest.Start(t, c)
	for i := range number {
		s.Create(secretsPath, fmt.Sprintf(`{"metadata":{"name":"s%d"},"stringData":{"a":"b"}}`, i))
	}
	servertest.Stop(t, s)

	c = migratorConfig(dir, true)
	c.Storage.EncryptionConfigFile = encryptionFile(t, "k2", "k1")
	s = servertest.Start(t, c)
	beginMigration(s, "keys", "", "secrets")
	awaitMigration(t, s, "keys", migrationv1.MigrationSucceeded)
	servertest.Stop(t, s)

	values := storedValues(t, dir, "/registry/secrets/")
	for i := range number {
		if k := secretKey(values, fmt.Sprintf("s%d", i)); k != "k2" {
			t.Errorf("secret %d is encrypted with %q", i, k)
		}
	}
	c = migratorConfig(dir, false)
	c.Storage.EncryptionConfigFile = encryptionFile(t, "k2")
	s = servertest.Start(t, c)
	s.Get(secretsPath)
}

// TestMigrationAfterARestart: a migration that was running when the server ended goes on, and leaves objects alone that were written after it
// began.
func TestMigrationAfterARestart(t *testing.T) {
	dir := t.TempDir()
	c := migratorConfig(dir, false)
	c.Storage.EncryptionConfigFile = encryptionFile(t, "k1")
	s := servertest.Start(t, c)
	s.Create(secretsPath, `{"metadata":{"name":"before"}}`)
	began := s.Metadata(secretsPath + "/before").ResourceVersion
	s.Create(secretsPath, `{"metadata":{"name":"after"}}`)
	beginMigration(s, "interrupted", "", "secrets")
	s.Patch(migrationsPath+"/interrupted/status", fmt.Sprintf(`{"status":{"resourceVersion":%q,"conditions":[{"type":"Running","status":"True",
		"reason":"MigrationRunning","message":"The migration is running","lastTransitionTime":%q}]}}`, began, time.Now().Format(time.RFC3339)))
	servertest.Stop(t, s)

	c = migratorConfig(dir, true)
	c.Storage.EncryptionConfigFile = encryptionFile(t, "k2", "k1")
	s = servertest.Start(t, c)
	if m := awaitMigration(t, s, "interrupted", migrationv1.MigrationSucceeded); m.Status.ResourceVersion != began {
		t.Errorf("status.resourceVersion has changed: %s, %s", began, m.Status.ResourceVersion)
	}
	servertest.Stop(t, s)
	values := storedValues(t, dir, "/registry/secrets/")
	if secretKey(values, "before") != "k2" || secretKey(values, "after") != "k1" {
		t.Errorf("the keys are %s and %s", secretKey(values, "before"), secretKey(values, "after"))
	}
}

const (
	definitionsPath = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	openSchema      = `"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}`
)

// TestMigrationOfCustomResources: objects are stored in the storage version of their definition, and the other version is not in
// status.storedVersions any more, so that it can be removed.
func TestMigrationOfCustomResources(t *testing.T) {
	dir := t.TempDir()
	s := servertest.Start(t, migratorConfig(dir, true))
	version := func(name string, storage bool) string {
		return fmt.Sprintf(`{"name":%q,"served":true,"storage":%t,%s}`, name, storage, openSchema)
	}
	s.Create(definitionsPath, `{"metadata":{"name":"things.example.com"},"spec":{"group":"example.com","scope":"Namespaced",
		"names":{"plural":"things","kind":"Thing"},"versions":[`+version("v1", true)+`]}}`)
	s.Served("/apis/example.com/v1/things")
	for _, name := range []string{"a", "b"} {
		s.Create("/apis/example.com/v1/namespaces/default/things", `{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":"`+
			name+`"},"spec":{"size":1}}`)
	}
	s.Patch(definitionsPath+"/things.example.com", `{"spec":{"versions":[`+version("v1", false)+`,`+version("v2", true)+`]}}`)
	beginMigration(s, "things", "example.com", "things")
	awaitMigration(t, s, "things", migrationv1.MigrationSucceeded)
	var d struct {
		Status struct {
			StoredVersions []string
			Conditions     []struct{ Type, Status, Reason, Message string }
		}
	}
	if err := json.Unmarshal([]byte(s.Get(definitionsPath+"/things.example.com")), &d); err != nil {
		t.Fatal(err)
	}
	want := struct{ Type, Status, Reason, Message string }{
		"StorageMigrating", "False", "MigrationSucceeded", "The migration has succeeded and the stored versions have been updated",
	}
	if c := d.Status.Conditions; fmt.Sprint(d.Status.StoredVersions) != "[v2]" || c[len(c)-1] != want {
		t.Errorf("%+v", d)
	}
	// Again, as the stored versions must not be lost.
	beginMigration(s, "again", "example.com", "things")
	awaitMigration(t, s, "again", migrationv1.MigrationSucceeded)
	s.Patch(definitionsPath+"/things.example.com", `{"spec":{"versions":[`+version("v2", true)+`]}}`)
	servertest.Stop(t, s)
	for name, value := range storedValues(t, dir, "/registry/example.com/things/") {
		if !bytes.Contains(value, []byte(`"apiVersion":"example.com/v2"`)) {
			t.Errorf("%s is stored as %s", name, value)
		}
	}
}

// TestResourcesThatCannotBeMigrated: a migration of a resource that does not exist waits for the resource. A
// migration of a resource that is not stored fails at once.
func TestResourcesThatCannotBeMigrated(t *testing.T) {
	c := migratorConfig("", true)
	now := clock.New(time.Now())
	c.Testing.Clock = now
	s := servertest.Start(t, c)
	beginMigration(s, "missing", "example.com", "nothings")
	beginMigration(s, "late", "example.com", "widgets")
	beginMigration(s, "computed", "", "componentstatuses")
	m := awaitMigration(t, s, "computed", migrationv1.MigrationFailed)
	checkCondition(t, &m, migrationv1.MigrationFailed, "StorageVersionMigrationFailed",
		`resource "/v1, Resource=componentstatuses" does not support discovery operations: [update patch list]`)
	s.DefineWidgets()
	awaitMigration(t, s, "late", migrationv1.MigrationSucceeded)
	m = readMigration(t, s, "missing")
	checkCondition(t, &m, migrationv1.MigrationRunning, "MigrationRunning", "The migration is running")
	now.Advance(time.Minute + time.Second)
	m = awaitMigration(t, s, "missing", migrationv1.MigrationFailed)
	checkCondition(t, &m, migrationv1.MigrationFailed, "StorageVersionMigrationFailed", "resource does not exist in discovery")
}

// TestMigrationOfARefusedObject: a migration fails if admission refuses an object; a later one succeeds.
func TestMigrationOfARefusedObject(t *testing.T) {
	s := servertest.Start(t, migratorConfig("", true))
	s.Create("/api/v1/namespaces/default/configmaps", `{"metadata":{"name":"a"}}`)
	const policy = `"metadata":{"name":"refuse"},"spec":`
	s.Create(apitest.AdmissionPath+"validatingadmissionpolicies", `{`+policy+`{"matchConstraints":{"resourceRules":[{"apiGroups":[""],
		"apiVersions":["v1"],"operations":["UPDATE"],"resources":["configmaps"]}]},
		"validations":[{"expression":"request.userInfo.username != 'system:serviceaccount:kube-system:storage-version-migrator-controller'"}]}}`)
	s.Create(apitest.AdmissionPath+"validatingadmissionpolicybindings", `{`+policy+`{"policyName":"refuse","validationActions":["Deny"]}}`)
	controller := s.As("system:serviceaccount:kube-system:storage-version-migrator-controller", "system:masters")
	status := func() int {
		return controller.Send(http.MethodPatch, "/api/v1/namespaces/default/configmaps/a", `{"data":{"a":"b"}}`).Status
	}
	wait.Until(t, "the policy is in effect", func() bool { return status() == http.StatusUnprocessableEntity })
	beginMigration(s, "refused", "", "configmaps")
	m := awaitMigration(t, s, "refused", migrationv1.MigrationFailed)
	c := meta.FindStatusCondition(m.Status.Conditions, string(migrationv1.MigrationFailed))
	if c.Reason != "StorageVersionMigrationFailed" ||
		!strings.Contains(c.Message, "not yet migrated. migration encountered unhandled error: configmaps ") {
		t.Errorf("%+v", c)
	}
	s.Do(http.MethodDelete, apitest.AdmissionPath+"validatingadmissionpolicybindings/refuse", "")
	wait.Until(t, "the policy is not in effect", func() bool { return status() == http.StatusOK })
	beginMigration(s, "next", "", "configmaps")
	awaitMigration(t, s, "next", migrationv1.MigrationSucceeded)
}
