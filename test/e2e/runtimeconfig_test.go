package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const aggregatedType = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"

// kindGates are the feature gates of kinds that are not served otherwise.
const kindGates = "ClusterTrustBundle=true,PodCertificateRequest=true,GenericWorkload=true,StorageVersionMigrator=true"

// TestRuntimeConfigAsKubeAPIServer starts kube-apiserver and Keelson with the same --runtime-config and
// --feature-gates, and compares the discovery documents, the OpenAPI documents and the priorities of the APIServices.
func TestRuntimeConfigAsKubeAPIServer(t *testing.T) {
	etcd := startEtcd(t, logDir(t))
	for i, args := range [][]string{
		nil,
		{"--runtime-config=api/all=true", "--feature-gates=" + kindGates},
		{"--runtime-config=api/all=true"},
		{"--runtime-config=api/beta=true"},
		{"--runtime-config=api/alpha=true"},
		{"--runtime-config=apps/v1=false,batch/v1/cronjobs=false"},
		{"--runtime-config=coordination.k8s.io/v1beta1=true,resource.k8s.io/v1beta2/devicetaintrules=true"},
		{"--runtime-config=certificates.k8s.io/v1beta1=true", "--feature-gates=ClusterTrustBundle=true"},
	} {
		t.Run(fmt.Sprint(args), func(t *testing.T) {
			dir := logDir(t)
			kube := kubeAPIServer(t, dir, etcd, append([]string{fmt.Sprintf("--etcd-prefix=/config%d", i)}, args...)...)
			defer kube.kill()
			keelson := keelsonOn(t, dir, args...)
			defer keelson.kill()
			compareServed(t, kube, keelson)
		})
	}
}

// compareServed compares the documents of two servers.
func compareServed(t *testing.T, kube, keelson *apiServer) {
	t.Helper()
	same := func(path, accept string, ignored ...string) []byte {
		t.Helper()
		wantStatus, want := kube.must(t, http.MethodGet, path, accept, "", nil)
		gotStatus, got := keelson.must(t, http.MethodGet, path, accept, "", nil)
		if wantStatus != gotStatus || !bytes.Equal(withoutMembers(t, want, ignored), withoutMembers(t, got, ignored)) {
			t.Errorf("%s: kube-apiserver %d, Keelson %d: %s", path, wantStatus, gotStatus, whereTheyDiffer(string(want), string(got)))
		}
		return want
	}
	same("/api", jsonType, "serverAddressByClientCIDRs")
	same("/api", aggregatedType)
	same("/apis", aggregatedType)
	var groups struct {
		Groups []struct {
			Name     string
			Versions []struct{ GroupVersion string }
		}
	}
	if err := json.Unmarshal(same("/apis", jsonType), &groups); err != nil {
		t.Fatal(err)
	}
	same("/api/v1", jsonType)
	for _, g := range groups.Groups {
		same("/apis/"+g.Name, jsonType)
		for _, v := range g.Versions {
			same("/apis/"+v.GroupVersion, jsonType)
		}
	}
	// The index has the hashes of all OpenAPI v3 documents.
	same("/openapi/v3", jsonType)
	if want, got := servicePriorities(t, kube), servicePriorities(t, keelson); !slices.Equal(want, got) {
		t.Errorf("APIServices: kube-apiserver has %s, Keelson %s", want, got)
	}
}

// withoutMembers returns a JSON object with sorted members and without those that are ignored.
func withoutMembers(t *testing.T, text []byte, ignored []string) []byte {
	t.Helper()
	var object map[string]any
	if json.Unmarshal(text, &object) != nil {
		return text
	}
	for _, name := range ignored {
		delete(object, name)
	}
	return marshal(object)
}

// servicePriorities returns the APIServices with their priorities, sorted.
func servicePriorities(t *testing.T, s *apiServer) []string {
	t.Helper()
	var list struct {
		Items []struct {
			Metadata struct{ Name string }
			Spec     struct{ GroupPriorityMinimum, VersionPriority int }
		}
	}
	_, text := s.must(t, http.MethodGet, "/apis/apiregistration.k8s.io/v1/apiservices", jsonType, "", nil)
	if err := json.Unmarshal(text, &list); err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, i := range list.Items {
		out = append(out, fmt.Sprintf("%s %d %d", i.Metadata.Name, i.Spec.GroupPriorityMinimum, i.Spec.VersionPriority))
	}
	slices.Sort(out)
	return out
}

// TestVersionsOffByDefaultAsKubeAPIServer creates, reads, lists, patches, applies, replaces and deletes objects of the
// versions that are off by default, in each of their versions, and sends invalid ones. testdata/versions.jsonl has the
// requests. It does the same with testdata/gates.jsonl, objects with fields of feature gates, under several gates.
func TestVersionsOffByDefaultAsKubeAPIServer(t *testing.T) {
	etcd := startEtcd(t, logDir(t))
	for i, c := range []struct {
		file string
		args []string
		// known are the requests whose answers differ, and why.
		known map[string]string
	}{
		{"versions.jsonl", []string{"--runtime-config=api/all=true", "--feature-gates=" + kindGates}, map[string]string{
			"/v1beta2/resourceslices":                     "a PUT that changes an annotation makes its manager the owner of the devices too",
			"strategic-merge-patch+json .*/resourceclaim": "kube-apiserver encodes opaque parameters anew and finds a change",
		}},
		{"gates.jsonl", nil, nil},
		{"gates.jsonl", []string{"--feature-gates=AllBeta=false"}, map[string]string{
			`"resources":\{"requests":\{"cpu":"1"\}\}`: "the QoS class counts the resources of the pod",
			`"fileKeyRef"`:        "the message names fileKeyRef",
			`"distinctAttribute"`: "the message names distinctAttribute",
		}},
		{"gates.jsonl", []string{"--runtime-config=api/all=true", "--feature-gates=AllAlpha=true,AllBeta=true"},
			map[string]string{
				`"operator":"Gt"`:   "validation does not know TaintTolerationComparisonOperators",
				`"hostUsers":false`: "validation does not know UserNamespacesHostNetworkSupport",
			}},
	} {
		t.Run(fmt.Sprint(c.file, c.args), func(t *testing.T) {
			dir := logDir(t)
			args := append([]string{"--disable-admission-plugins=ServiceAccount"}, c.args...)
			kube := kubeAPIServer(t, dir, etcd, append([]string{fmt.Sprintf("--etcd-prefix=/objects%d", i)}, args...)...)
			defer kube.kill()
			keelson := keelsonOn(t, dir, args...)
			defer keelson.kill()
			text, err := os.ReadFile("testdata/" + c.file)
			if err != nil {
				t.Fatal(err)
			}
			differ := 0
			for line := range strings.Lines(string(text)) {
				if why := compareRequest(t, kube, keelson, line); why != "" && !isKnown(line, c.known) {
					differ++
					t.Errorf("%.300s\n%s", line, why)
				}
			}
			t.Logf("%d requests, %d answers differ", strings.Count(string(text), "\n"), differ)
		})
	}
}

// isKnown reports whether one of the expressions matches a request: "CONTENT-TYPE PATH BODY".
func isKnown(line string, known map[string]string) bool {
	r := parseRequest(line)
	for expression := range known {
		if regexp.MustCompile(expression).MatchString(r.ContentType + " " + r.Path + " " + string(r.Body)) {
			return true
		}
	}
	return false
}

// fileRequest is a request in a file of testdata.
type fileRequest struct {
	Method, Path, Accept, ContentType string
	Body                              json.RawMessage
}

func parseRequest(line string) fileRequest {
	r := fileRequest{Accept: jsonType, ContentType: jsonType}
	if err := json.Unmarshal([]byte(line), &r); err != nil {
		panic(err) // the file is part of the repository
	}
	return r
}

// compareRequest sends a request to both servers and returns how the answers differ.
func compareRequest(t *testing.T, kube, keelson *apiServer, line string) string {
	t.Helper()
	r := parseRequest(line)
	wantStatus, want := kube.must(t, r.Method, r.Path, r.Accept, r.ContentType, r.Body)
	gotStatus, got := keelson.must(t, r.Method, r.Path, r.Accept, r.ContentType, r.Body)
	a, b := comparableAnswer(want), comparableAnswer(got)
	if wantStatus == gotStatus && a == b {
		return ""
	}
	return fmt.Sprintf("kube-apiserver %d, Keelson %d: %s", wantStatus, gotStatus, whereTheyDiffer(a, b))
}

var (
	timeText = regexp.MustCompile(`"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"`)
	uidText  = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)
	ageText  = regexp.MustCompile(`"\d+[smhd](\d+[smhd])?"`)
)

// comparableAnswer returns an answer without what is different in every server.
func comparableAnswer(text []byte) string {
	var v any
	if json.Unmarshal(text, &v) != nil {
		return string(text)
	}
	dropMember(v, "resourceVersion")
	out := timeText.ReplaceAllString(string(marshal(v)), `"TIME"`)
	return ageText.ReplaceAllString(uidText.ReplaceAllString(out, "UID"), `"AGE"`)
}

// dropMember removes a member from the metadata of all objects in a document.
func dropMember(v any, name string) {
	switch v := v.(type) {
	case map[string]any:
		if metadata, ok := v["metadata"].(map[string]any); ok {
			delete(metadata, name)
		}
		for _, member := range v {
			dropMember(member, name)
		}
	case []any:
		for _, item := range v {
			dropMember(item, name)
		}
	}
}

// whereTheyDiffer returns what two texts have where they begin to differ.
func whereTheyDiffer(a, b string) string {
	i := 0
	for i < min(len(a), len(b)) && a[i] == b[i] {
		i++
	}
	const before, after = 80, 200
	part := func(s string) string { return s[max(0, i-before):min(len(s), i+after)] }
	return fmt.Sprintf("\nkube-apiserver ...%s\nKeelson        ...%s", part(a), part(b))
}
