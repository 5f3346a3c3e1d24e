package server

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	rbacv1 "k8s.io/api/rbac/v1"
	apiversion "k8s.io/apimachinery/pkg/version"

	"github.com/keelson-dev/keelson/internal/access/admission/plugin"
	"github.com/keelson-dev/keelson/internal/access/admission/plugin/policies"
	"github.com/keelson-dev/keelson/internal/machinery/features"
	"github.com/keelson-dev/keelson/internal/machinery/release"
	"github.com/keelson-dev/keelson/internal/server/servertest/apitest"
	"github.com/keelson-dev/keelson/internal/server/zpages"
)

// TestEmulatedReleases compares a server that emulates a release with kube-apiserver 1.37.2 and the same flags:
// once by default, and once with all versions and all alpha gates. It compares the resources, the documents of
// discovery and OpenAPI, the feature gates with their stages and defaults, and the default roles and their
// bindings.
func TestEmulatedReleases(t *testing.T) {
	for minor := release.Oldest; minor <= release.Newest; minor++ {
		for _, everything := range []bool{false, true} {
			r := release.Of(minor)
			name := r.String()
			if everything {
				name += "-all"
			}
			t.Run(name, func(t *testing.T) {
				conf := testConfig(t)
				conf.API.EmulatedVersion = r.String()
				if everything {
					conf.API.RuntimeConfig = []string{"api/all=true"}
					conf.API.FeatureGates = []string{"AllAlpha=true,AllBeta=true,CBORServingAndStorage=false"}
					if minor < 36 { // kube-apiserver does not start with these
						conf.API.FeatureGates = append(conf.API.FeatureGates, "EventedPLEG=false,StorageVersionAPI=false,MutatingAdmissionPolicy=false")
					}
				}
				compareEmulated(t, conf, r, "testdata/emulated/"+name+".txt")
			})
		}
	}
}

// TestGatesOfTheServer checks the effects of feature gates outside of the kinds: pages, checks, admission
// plug-ins, modes of impersonation, and the addresses that Services may choose.
func TestGatesOfTheServer(t *testing.T) {
	for minor, want := range map[int]bool{34: false, 37: true} {
		conf := testConfig(t)
		conf.API.EmulatedVersion = release.Of(minor).String()
		s := start(t, conf)
		c := httpClient(t, s, true)
		check := func(what string, got bool) {
			if got != want {
				t.Errorf("1.%d: %s: %v", minor, what, got)
			}
		}
		for _, path := range []string{zpages.StatuszPath, zpages.FlagszPath} {
			check(path, apitest.Send(t, c, "GET", s.URL()+path, "").Status == http.StatusOK)
			check(path+" in /", strings.Contains(apitest.Send(t, c, "GET", s.URL()+"/", "").Body, path))
		}
		check("storage-readiness",
			strings.Contains(apitest.Send(t, c, "GET", s.URL()+"/readyz?verbose", "").Body, "/storage-readiness ok"))
		a := apitest.Send(t, c, "GET", s.URL()+"/api", "", "Impersonate-Group", "g")
		check("constrained impersonation", !strings.Contains(a.Body, "requested [{Group  g    }]"))
		a = apitest.Send(t, c, "POST", s.URL()+"/api/v1/namespaces/default/services",
			`{"metadata":{"name":"a"},"spec":{"clusterIP":"10.0.0.077","ports":[{"port":80}]}}`)
		check("refused addresses", a.Status == http.StatusUnprocessableEntity)
		gates, err := features.Parse(nil, release.Of(minor))
		if err != nil {
			t.Fatal(err)
		}
		plugins := plugin.List()
		for i := range plugins {
			if name := plugins[i].Name; name == "PodTopologyLabels" || name == "MutatingAdmissionPolicy" {
				p, err := plugins[i].Make(&plugin.Input{Options: &plugin.Options{
					Gates: gates, Registry: s.api.registry, Policies: &policies.Plugins{}}})
				if err != nil {
					t.Fatal(err)
				}
				check(name, p.Mutate != nil)
			}
		}
	}
}

// compareEmulated compares the resources, gates, roles and documents of a server with the lines of a file.
func compareEmulated(t *testing.T, conf settings, r release.Release, file string) {
	s := start(t, conf)
	c := httpClient(t, s, true)
	recorded, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Split(strings.TrimSpace(string(recorded)), "\n")
	got := emulatedLines(t, c, s.URL())
	for _, line := range want {
		if !slices.Contains(got, line) {
			t.Errorf("missing: %s", line)
		}
	}
	for _, line := range got {
		if !slices.Contains(want, line) {
			t.Errorf("kube-apiserver does not have: %s", line)
		}
	}
	var v apiversion.Info
	read(t, c, s.URL()+"/version", "application/json", &v)
	if v.Minor != fmt.Sprint(release.Newest) || v.EmulationMinor != fmt.Sprint(r.Minor()) ||
		v.MinCompatibilityMinor != fmt.Sprint(r.MinCompatible()) {
		t.Errorf("/version: %+v", v)
	}
}

// emulatedLines returns the lines about a server, sorted.
func emulatedLines(t *testing.T, c *http.Client, url string) []string {
	got := slices.Concat(resourceLines(t, c, url), gateLines(t, c, url), roleLines(t, c, url), documentLines(t, c, url))
	slices.Sort(got)
	return got
}

// documentLines returns a line with a hash for each document of discovery and OpenAPI.
func documentLines(t *testing.T, c *http.Client, url string) (lines []string) {
	add := func(path string) (document map[string]any) {
		read(t, c, url+path, "application/json", &document)
		delete(document, "serverAddressByClientCIDRs") // the address of the server
		text, err := json.Marshal(document)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, fmt.Sprintf("document %s %x", path, sha256.Sum256(text))[:len("document ")+len(path)+17])
		return document
	}
	add("/api")
	add("/openapi/v2")
	var paths struct{ Paths map[string]any }
	read(t, c, url+"/openapi/v3", "application/json", &paths)
	for path := range paths.Paths {
		add("/openapi/v3/" + path)
		if strings.HasPrefix(path, "api") {
			add("/" + path)
		}
	}
	return lines
}

// read reads a document in a media type.
func read(t *testing.T, c *http.Client, url, accept string, into any) {
	t.Helper()
	a := apitest.Send(t, c, "GET", url, "", "Accept", accept)
	if err := json.Unmarshal([]byte(a.Body), into); err != nil {
		t.Fatalf("%s: %d %v", url, a.Status, err)
	}
}

func resourceLines(t *testing.T, c *http.Client, url string) (lines []string) {
	const accept = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	for _, path := range []string{"/api", "/apis"} {
		var list apidiscovery.APIGroupDiscoveryList
		read(t, c, url+path, accept, &list)
		for _, group := range list.Items {
			for _, v := range group.Versions {
				for _, r := range v.Resources {
					lines = append(lines, fmt.Sprintf("resource %s/%s %s", group.Name, v.Version, r.Resource))
					for _, sub := range r.Subresources {
						lines = append(lines, fmt.Sprintf("resource %s/%s %s/%s", group.Name, v.Version, r.Resource, sub.Subresource))
					}
				}
			}
		}
	}
	return lines
}

var gateMetric = regexp.MustCompile(`(?m)^kubernetes_feature_enabled\{name="(\w+)",stage="(\w*)"\} ([01])$`)

func gateLines(t *testing.T, c *http.Client, url string) (lines []string) {
	for _, m := range gateMetric.FindAllStringSubmatch(apitest.Send(t, c, "GET", url+"/metrics", "").Body, -1) {
		lines = append(lines, fmt.Sprintf("gate %s %s %s", m[1], m[2], m[3]))
	}
	return lines
}

func roleLines(t *testing.T, c *http.Client, url string) (lines []string) {
	base := url + "/apis/rbac.authorization.k8s.io/v1/"
	line := func(kind, namespace, name string, content any) {
		text, err := json.Marshal(content)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, fmt.Sprintf("%s %s %s %x", kind, namespace, name, sha256.Sum256(text))[:len(kind)+len(namespace)+len(name)+19])
	}
	var roles rbacv1.RoleList
	read(t, c, base+"roles", "application/json", &roles)
	for _, r := range roles.Items {
		line("role", r.Namespace, r.Name, r.Rules)
	}
	var clusterRoles rbacv1.ClusterRoleList
	read(t, c, base+"clusterroles", "application/json", &clusterRoles)
	for _, r := range clusterRoles.Items {
		if r.AggregationRule == nil { // a controller computes the rules of the others
			line("clusterrole", "", r.Name, r.Rules)
		}
	}
	var bindings rbacv1.ClusterRoleBindingList
	read(t, c, base+"clusterrolebindings", "application/json", &bindings)
	for _, b := range bindings.Items {
		line("clusterrolebinding", "", b.Name, b.Subjects)
	}
	return lines
}
