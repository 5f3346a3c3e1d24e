// Package upgrade has one data directory written by servers that emulate different minors of Kubernetes, in turn.
package upgrade

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"math/big"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/machinery/release"
	"github.com/keelson-dev/keelson/internal/machinery/scheme/wire"
	"github.com/keelson-dev/keelson/internal/resource"
	"github.com/keelson-dev/keelson/internal/server/datadir"
	"github.com/keelson-dev/keelson/internal/server/servertest"
	"github.com/keelson-dev/keelson/internal/storage"
	"github.com/keelson-dev/keelson/internal/storage/embedded"
)

// kind is a resource with a body for a new object of it. Its versions differ between the minors.
type kind struct {
	path string // after the version: "namespaces/default/leases"
	gr   string
	// versions are those that some minor serves, the newest first.
	versions []string
	body     string
}

const (
	rules = `{"resourceRules":[{"apiGroups":["example.com"],"apiVersions":["v1"],"operations":["CREATE"],"resources":["widgets"]}]}`
)

func kinds(t *testing.T) []kind {
	const admission = "admissionregistration.k8s.io"
	at := func(namespaced bool, gr, versions, body string) kind {
		name, _, _ := strings.Cut(gr, ".")
		path := name
		if namespaced {
			path = "namespaces/default/" + name
		}
		return kind{path, gr, strings.Fields(versions), body}
	}
	return []kind{
		at(true, "configmaps.", "v1", `"data":{"a":"b"}`),
		at(false, "validatingadmissionpolicies."+admission, "v1 v1beta1 v1alpha1",
			`"spec":{"matchConstraints":`+rules+`,"validations":[{"expression":"true"}]}`),
		at(false, "validatingadmissionpolicybindings."+admission, "v1 v1beta1 v1alpha1",
			`"spec":{"policyName":"none","validationActions":["Warn"]}`),
		at(false, "mutatingadmissionpolicies."+admission, "v1 v1beta1 v1alpha1",
			`"spec":{"matchConstraints":`+rules+`,"reinvocationPolicy":"Never","mutations":[{"patchType":"ApplyConfiguration",
			"applyConfiguration":{"expression":"Object{}"}}]}`),
		at(false, "mutatingadmissionpolicybindings."+admission, "v1 v1beta1 v1alpha1", `"spec":{"policyName":"none"}`),
		at(false, "clustertrustbundles.certificates.k8s.io", "v1 v1beta1 v1alpha1", trustBundle(t)),
		at(true, "podcertificaterequests.certificates.k8s.io", "v1 v1beta1", `"spec":{"signerName":"example.com/foo","podName":"p","podUID":"u","serviceAccountName":"s","serviceAccountUID":"su","nodeName":"n","nodeUID":"nu","stubPKCS10Request":"`+
			`MIHGMG4CAQAwDDEKMAgGA1UEAwwBeDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABJOIgzYqFy+G+Ta9+L/FUFDm/qCX/vCoSJ0G`+
			`rcYozuFzbWmj5QmQWnR71tStkr7JF66cM5FDa+tt6jJ4n/bbSJ6gADAKBggqhkjOPQQDAgNIADBFAiBaJ+Till8DW1d4rwEWdZv9Qhyj8H0KnkOmvl2vrYN4QAIhAI5F35cDlSkoeV6FZb0MFNyWUdruYWWxzDcJmXmgXPdp"}`),
		at(true, "leases.coordination.k8s.io", "v1", `"spec":{"holderIdentity":"a","leaseDurationSeconds":15}`),
		at(true, "leasecandidates.coordination.k8s.io", "v1beta1 v1alpha2",
			`"spec":{"leaseName":"a","binaryVersion":"1.34.0","emulationVersion":"1.34.0","strategy":"OldestEmulationVersion"}`),
		at(false, "storageversionmigrations.storagemigration.k8s.io", "v1 v1beta1 v1alpha1",
			`"spec":{"resource":{"group":"example.com","resource":"widgets"}}`),
		at(false, "devicetaintrules.resource.k8s.io", "v1 v1beta2 v1alpha3",
			`"spec":{"deviceSelector":{"driver":"dra.example.com"},"taint":{"key":"example.com/a","effect":"NoSchedule"}}`),
		at(false, "deviceclasses.resource.k8s.io", "v1 v1beta2 v1beta1", `"spec":{}`),
		at(true, "resourceclaims.resource.k8s.io", "v1 v1beta2", `"spec":{"devices":{"requests":[{"name":"a","exactly":{"deviceClassName":"c"}}]}}`),
		at(false, "servicecidrs.networking.k8s.io", "v1 v1beta1", `"spec":{"cidrs":["10.96.0.0/24"]}`),
		at(false, "volumeattributesclasses.storage.k8s.io", "v1 v1beta1", `"driverName":"csi.example.com","parameters":{"a":"b"}`),
		at(true, "horizontalpodautoscalers.autoscaling", "v2 v1", `"spec":{"maxReplicas":3,"scaleTargetRef":{"kind":"Deployment","name":"d","apiVersion":"apps/v1"}}`),
	}
}

// trustBundle returns the spec of a ClusterTrustBundle.
func trustBundle(t *testing.T) string {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf(`"spec":{"trustBundle":%q}`, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
}

func (k kind) group() string {
	_, group, _ := strings.Cut(k.gr, ".")
	return group
}

// collection returns the path of all objects in a version.
func (k kind) collection(version string) string {
	if k.group() == "" {
		return "/api/" + version + "/" + k.path
	}
	return "/apis/" + k.group() + "/" + version + "/" + k.path
}

// turn is a server of the test: the minor that it emulates and the one that it has to be compatible with.
type turn struct{ minor, compatible int }

func (t turn) String() string { return fmt.Sprintf("1.%d with 1.%d", t.minor, t.compatible) }

func (t turn) config(dir string) servertest.Config {
	c := servertest.Default()
	c.Storage.Backend, c.Storage.DataDir = config.StorageEmbedded, dir
	c.API.EmulatedVersion = fmt.Sprintf("1.%d", t.minor)
	c.API.MinCompatibilityVersion = fmt.Sprintf("1.%d", t.compatible)
	c.API.RuntimeConfig = []string{"api/all=true"}
	c.API.FeatureGates = []string{"AllAlpha=true,AllBeta=true,CBORServingAndStorage=false"}
	if t.minor < 36 {
		c.API.FeatureGates = append(c.API.FeatureGates, "EventedPLEG=false,StorageVersionAPI=false")
	}
	return c
}

// TestMinorsInTurn: servers of 1.34 to 1.37 take turns on a data directory, up and down. Each reads in every version
// that it serves what the others have written, as they showed it in this version, and can change it. What it stores is
// in versions that the minor which it has to be compatible with knows.
func TestMinorsInTurn(t *testing.T) {
	dir := t.TempDir()
	w := world{t: t, dir: dir, shown: map[string]map[string]any{}}
	for i, v := range []turn{
		{34, 34}, {35, 34}, {36, 35}, {37, 36}, {37, 37}, {36, 36}, {37, 35}, {35, 35}, {34, 34}, {37, 34}, {36, 34}, {37, 36},
	} {
		w.take(fmt.Sprintf("o%d", i), v)
	}
	t.Logf("%d objects were created, %d were compared", len(w.created), len(w.compared))
	if len(w.created) < 12*8 || len(w.compared) < 20 {
		t.Errorf("%d objects were created, and %d compared", len(w.created), len(w.compared))
	}
}

// world is what the servers have shown of the objects.
type world struct {
	t   *testing.T
	dir string
	// shown are the objects as they were shown last, by their paths.
	shown             map[string]map[string]any
	created, compared []string
}

// take has a server read all objects, change them, and create one of each kind.
func (w *world) take(name string, v turn) {
	before := w.revision()
	s := servertest.Start(w.t, v.config(w.dir))
	served := map[string]bool{}
	for _, k := range kinds(w.t) {
		for _, version := range k.versions {
			path := k.collection(version)
			if s.Send(http.MethodGet, path, "").Status != http.StatusOK {
				continue
			}
			served[path] = true
			w.compare(s, v, k, version)
		}
	}
	for _, k := range kinds(w.t) {
		i := slices.IndexFunc(k.versions, func(version string) bool { return served[k.collection(version)] })
		if i < 0 || k.body == "" {
			continue
		}
		path := k.collection(k.versions[i])
		for _, object := range w.list(s, path) {
			if n := nameOf(object); strings.HasPrefix(n, "o") {
				s.Patch(path+"/"+n, `{"metadata":{"annotations":{"written-by":"`+v.String()+`"}}}`)
			}
		}
		a := s.Send(http.MethodPost, path, `{"metadata":{"name":"`+name+`"},`+k.body+`}`)
		if a.Status != http.StatusCreated {
			w.t.Errorf("%s: POST %s: %d %s", v, path, a.Status, a.Body)
			continue
		}
		w.created = append(w.created, path+"/"+name)
	}
	// What is shown in all versions now has to be shown by the next servers.
	clear(w.shown)
	for path := range maps.Keys(served) {
		for _, object := range w.list(s, path) {
			w.shown[path+"/"+nameOf(object)] = object
		}
	}
	servertest.Stop(w.t, s)
	w.stored(v, before)
}

// compare compares the objects that a server shows in a version with what the server before has shown.
func (w *world) compare(s *servertest.Server, v turn, k kind, version string) {
	path := k.collection(version)
	for _, object := range w.list(s, path) {
		name := nameOf(object)
		before := w.shown[path+"/"+name]
		if before == nil || !strings.HasPrefix(name, "o") {
			continue
		}
		w.compared = append(w.compared, path)
		if a, b := text(before), text(object); a != b {
			w.t.Errorf("%s shows %s/%s as\n%s\nand the server before\n%s", v, path, name, b, a)
		}
	}
	for known := range w.shown {
		if name, ok := strings.CutPrefix(known, path+"/"); ok && s.Send(http.MethodGet, path+"/"+name, "").Status != http.StatusOK {
			w.t.Errorf("%s does not show %s", v, known)
		}
	}
}

func (w *world) list(s *servertest.Server, path string) []map[string]any {
	w.t.Helper()
	var list struct{ Items []map[string]any }
	if err := json.Unmarshal([]byte(s.Get(path)), &list); err != nil {
		w.t.Fatal(err)
	}
	return list.Items
}

func nameOf(object map[string]any) string {
	name, _ := object["metadata"].(map[string]any)["name"].(string)
	return name
}

func text(object map[string]any) string {
	out, _ := json.Marshal(object) // it comes from JSON
	return string(out)
}

func (w *world) revision() int64 {
	store, err := embedded.Open(embedded.Options{Dir: datadir.StoreDir(w.dir)})
	if err != nil {
		w.t.Fatal(err)
	}
	defer store.Close()
	revision, err := store.Revision(w.t.Context())
	if err != nil {
		w.t.Fatal(err)
	}
	return revision
}

// stored checks the versions of the values that were written after a revision.
func (w *world) stored(v turn, after int64) {
	w.t.Helper()
	store, err := embedded.Open(embedded.Options{Dir: datadir.StoreDir(w.dir)})
	if err != nil {
		w.t.Fatal(err)
	}
	defer store.Close()
	found, err := store.Range(w.t.Context(), storage.RangeRequest{Start: "/registry/", End: storage.PrefixEnd("/registry/")})
	if err != nil {
		w.t.Fatal(err)
	}
	since := introductions(w.t)
	checked := 0
	for _, e := range found.Entries {
		if e.ModRevision <= after {
			continue
		}
		envelope, err := wire.OpenEnvelope(e.Value)
		if err != nil {
			continue // JSON, or a number
		}
		minors, ok := since[schema.FromAPIVersionAndKind(envelope.APIVersion, envelope.Kind)]
		if !ok {
			continue // a RangeAllocation
		}
		checked++
		if minors.version > v.compatible && minors.oldest <= v.compatible {
			w.t.Errorf("%s stores %s in %s, which is known since 1.%d", v, e.Key, envelope.APIVersion, minors.version)
		}
	}
	if checked < 8 {
		w.t.Errorf("%s: %d values were written", v, checked)
	}
}

// introduction is the minor that introduced a version of a kind, and the one that introduced its oldest version which is not alpha.
// An object of a kind that had only alpha versions in the minor to be compatible with is stored in a version that this minor does not
// know, as in kube-apiserver.
type introduction struct{ version, oldest int }

// introductions returns when the versions of the kinds were introduced, as the Go types of the API say.
func introductions(t *testing.T) map[schema.GroupVersionKind]introduction {
	t.Helper()
	gates, err := features.Parse([]string{"AllAlpha=true,AllBeta=true,CBORServingAndStorage=false"}, release.Release{})
	if err != nil {
		t.Fatal(err)
	}
	out := map[schema.GroupVersionKind]introduction{}
	for _, k := range resource.Kinds(gates) {
		oldest := release.Newest + 1
		minors := map[schema.GroupVersionKind]int{}
		for i := range k.Versions {
			v := &k.Versions[i]
			introduced, ok := v.New().(interface {
				APILifecycleIntroduced() (major, minor int)
			})
			if !ok || strings.Contains(v.Name, "alpha") {
				continue
			}
			_, minor := introduced.APILifecycleIntroduced()
			oldest = min(oldest, minor)
			minors[k.GroupVersion(v).WithKind(k.Name)] = minor
		}
		for gvk, minor := range minors {
			out[gvk] = introduction{minor, oldest}
		}
	}
	return out
}
