package server

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/machinery/scheme"
	"github.com/keelson-dev/keelson/internal/machinery/scheme/wire"
	"github.com/keelson-dev/keelson/internal/storage"
)

// TestUnreadableObjects reads and deletes an object whose stored value cannot be decoded (KEP-3926).
func TestUnreadableObjects(t *testing.T) {
	s := start(t, testConfig(t))
	const path, key = "/api/v1/namespaces/default/configmaps", "/registry/configmaps/default/bad"
	if a := sendAsAdmin(t, s, "POST", path, `{"metadata":{"name":"good"}}`); a.Code != http.StatusCreated {
		t.Fatal(a.Body)
	}
	put(t, s, key, []byte("k8s\x00\xff"))
	status := func(a *httptest.ResponseRecorder) (out metav1.Status) {
		t.Helper()
		if err := json.Unmarshal(a.Body.Bytes(), &out); err != nil {
			t.Fatal(err)
		}
		return out
	}
	const option = "?ignoreStoreReadErrorWithClusterBreakingPotential=true"
	for _, c := range []struct {
		request string
		code    int
		reason  metav1.StatusReason
		message string
	}{
		{"GET " + path + "/bad", 500, "InternalError", "corrupt object, Code: 7, Key: /configmaps/default/bad"},
		{"GET " + path, 500, "StorageReadError", "failed to read one or more configmaps from the storage: StorageError: corrupt " +
			"object, Code: 7, Key: " + key},
		{"DELETE " + path + "/bad", 500, "InternalError", "corrupt object"},
		{"DELETE " + path + "/good" + option, 409, "Conflict", "unsafe deletion is not allowed because the object is decodable from storage"},
		{"DELETE " + path + "/none" + option, 404, "NotFound", ""},
		{"DELETE " + path + option, 422, "Invalid", "is not allowed with DELETECOLLECTION"},
		{"DELETE " + path + "/bad" + option + "&gracePeriodSeconds=1", 422, "Invalid", "cannot be set together with .gracePeriodSeconds"},
		{"DELETE " + path + "/bad" + option + "&dryRun=All", 200, "", ""},
		{"DELETE " + path + "/bad" + option, 200, "", ""},
		{"GET " + path + "/bad", 404, "NotFound", ""},
		{"GET " + path + "/good", 200, "", ""},
	} {
		method, url, _ := strings.Cut(c.request, " ")
		a := sendAsAdmin(t, s, method, url, "")
		if got := status(a); a.Code != c.code || got.Reason != c.reason || !strings.Contains(got.Message, c.message) {
			t.Errorf("%s: %d %s", c.request, a.Code, a.Body)
		}
	}
}

// TestUnsafeDeletionNeedsPermission checks that the permission to delete is not enough to delete an unreadable
// object.
func TestUnsafeDeletionNeedsPermission(t *testing.T) {
	s := start(t, testConfig(t))
	const role = `{"metadata":{"name":"deleter"},"rules":[{"apiGroups":[""],"resources":["configmaps"],"verbs":["delete"]}]}`
	const binding = `{"metadata":{"name":"deleter"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role",` +
		`"name":"deleter"},"subjects":[{"kind":"User","apiGroup":"rbac.authorization.k8s.io","name":"dora"}]}`
	rbac := "/apis/rbac.authorization.k8s.io/v1/namespaces/default/"
	for path, body := range map[string]string{"roles": role, "rolebindings": binding} {
		if a := sendAsAdmin(t, s, "POST", rbac+path, body); a.Code != http.StatusCreated {
			t.Fatal(a.Body)
		}
	}
	put(t, s, "/registry/configmaps/default/bad", []byte("k8s\x00\xff"))
	r := httptest.NewRequest("DELETE", "/api/v1/namespaces/default/configmaps/bad?ignoreStoreReadErrorWithClusterBreakingPotential=true", nil)
	r.Header.Set("Authorization", "Bearer admintoken")
	r.Header.Set("Impersonate-User", "dora")
	a := httptest.NewRecorder()
	s.http.server.Handler.ServeHTTP(a, r)
	if a.Code != http.StatusForbidden || !strings.Contains(a.Body.String(), `not permitted to do \"unsafe-delete-ignore-read-errors\"`) {
		t.Errorf("%d %s", a.Code, a.Body)
	}
}

// TestValuesOfOtherVersions reads an object that an older release stored in a version with a different protobuf
// message.
func TestValuesOfOtherVersions(t *testing.T) {
	s := start(t, testConfig(t))
	old := &autoscalingv1.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "old", UID: "u"},
		Spec: autoscalingv1.HorizontalPodAutoscalerSpec{
			MaxReplicas: 3, TargetCPUUtilizationPercentage: new(int32(70)),
			ScaleTargetRef: autoscalingv1.CrossVersionObjectReference{Kind: "Deployment", Name: "d", APIVersion: "apps/v1"},
		},
	}
	value, err := scheme.EncodeEnvelope(wire.NewEnvelopeHead("autoscaling/v1", "HorizontalPodAutoscaler"), old)
	if err != nil {
		t.Fatal(err)
	}
	put(t, s, "/registry/horizontalpodautoscalers/default/old", value)
	code, body := getAsAdmin(t, s, "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers/old")
	if code != http.StatusOK || !strings.Contains(body, `"averageUtilization":70`) || !strings.Contains(body, `"maxReplicas":3`) {
		t.Errorf("%d %s", code, body)
	}
}

func put(t *testing.T, s *Server, key string, value []byte) {
	t.Helper()
	if _, err := s.stores.Main.Commit(t.Context(), storage.Txn{Ops: []storage.Op{storage.Put(key, value)}}); err != nil {
		t.Fatal(err)
	}
}
