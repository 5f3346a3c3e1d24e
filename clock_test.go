package keelson_test

import (
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson"
	"github.com/keelson-dev/keelson/clock"
	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/machinery/wait"
)

// TestClock checks that timestamps, the ends of Events and tokens, and the expiry of a kube-controller-manager's
// lease depend on the test's clock.
func TestClock(t *testing.T) {
	began := time.Date(2031, 2, 3, 4, 5, 6, 0, time.UTC)
	c := clock.New(began)
	s := keelson.ForTest(t, inProcess, func(conf *config.Config) { conf.Testing.Clock = c })
	client := clientset(t, s)
	settle(t, s)
	a, err := client.CoreV1().ConfigMaps("default").Create(t.Context(), configMap("a"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if !a.CreationTimestamp.Time.Equal(began) || !a.ManagedFields[0].Time.Time.Equal(began) {
		t.Errorf("created %v, changed %v, want %v", a.CreationTimestamp, a.ManagedFields[0].Time, began)
	}
	event := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: "e"},
		InvolvedObject: corev1.ObjectReference{Namespace: "default", Kind: "ConfigMap", Name: "a"},
	}
	if _, err := client.CoreV1().Events("default").Create(t.Context(), event, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	seconds := int64(7200)
	token, err := client.CoreV1().ServiceAccounts("default").CreateToken(t.Context(), "default",
		&authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}},
		metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if want := began.Add(2 * time.Hour); !token.Status.ExpirationTimestamp.Time.Equal(want) {
		t.Errorf("the token expires at %v, want %v", token.Status.ExpirationTimestamp, want)
	}
	account := s.RESTConfig()
	account.BearerToken = token.Status.Token
	review := func() error {
		_, err := clientFor(t, account).AuthenticationV1().SelfSubjectReviews().Create(
			t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		return err
	}
	hasEvent := func() bool {
		_, err := client.CoreV1().Events("default").Get(t.Context(), "e", metav1.GetOptions{})
		if err != nil && !kerrors.IsNotFound(err) {
			t.Fatal(err)
		}
		return err == nil
	}
	c.Advance(59 * time.Minute)
	if err := review(); err != nil || !hasEvent() {
		t.Errorf("after 59 minutes the token is not valid or the event is gone: %v", err)
	}
	c.Advance(2 * time.Minute)
	wait.Until(t, "the event to be gone after 61 minutes", func() bool { return !hasEvent() })
	if err := review(); err != nil {
		t.Errorf("after 61 minutes the token is not valid: %v", err)
	}
	c.Advance(time.Hour + time.Minute) // tokens are accepted for a minute longer, for clocks that differ
	if err := review(); !kerrors.IsUnauthorized(err) {
		t.Errorf("after two hours the token is valid: %v", err)
	}
}

// TestClockOfTables checks that the ages in tables depend on the test's clock: of objects, watch events and a
// Scale.
func TestClockOfTables(t *testing.T) {
	c := clock.New(time.Date(2031, 2, 3, 4, 5, 6, 0, time.UTC))
	s := keelson.ForTest(t, inProcess, func(conf *config.Config) { conf.Testing.Clock = c })
	client := clientset(t, s)
	r := &corev1.ReplicationController{
		ObjectMeta: metav1.ObjectMeta{Name: "r"}, Spec: corev1.ReplicationControllerSpec{
			Selector: map[string]string{"a": "b"}, Template: &corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}},
			},
		},
	}
	if _, err := client.CoreV1().ReplicationControllers("default").Create(t.Context(), r, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.Advance(49 * time.Hour)
	const at = "/api/v1/namespaces/default/replicationcontrollers"
	for _, path := range []string{at, at + "/r", at + "/r/scale", at + "?watch=true&resourceVersion=0&timeoutSeconds=1"} {
		got, err := client.CoreV1().RESTClient().Get().RequestURI(path).
			SetHeader("Accept", "application/json;as=Table;g=meta.k8s.io;v=v1").DoRaw(t.Context())
		if err != nil || !strings.Contains(string(got), `"2d1h"`) {
			t.Errorf("%s after 49 hours: %v %s", path, err, got)
		}
	}
}

// TestClockOfQuotas checks that a pod whose deletion has taken too long, by the test's clock, counts for no quota.
func TestClockOfQuotas(t *testing.T) {
	c := clock.New(time.Date(2031, 2, 3, 4, 5, 6, 0, time.UTC))
	s := keelson.ForTest(t, inProcess, func(conf *config.Config) { conf.Testing.Clock = c })
	client := clientset(t, s)
	waitForIdle(t, s)
	one := corev1.ResourceList{"cpu": resource.MustParse("1")}
	for _, name := range []string{"stays", "goes"} {
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: []string{"example.com/a"}},
			Spec: corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{{
				Name: "c", Image: "i", Resources: corev1.ResourceRequirements{Requests: one},
			}}},
		}
		if _, err := client.CoreV1().Pods("default").Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := client.CoreV1().Pods("default").Delete(t.Context(), "goes", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"2", "1"} {
		if i == 1 {
			c.Advance(time.Hour)
		}
		name := "q" + want
		q := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ResourceQuotaSpec{
			Hard: corev1.ResourceList{"requests.cpu": resource.MustParse("9")},
		}}
		if _, err := client.CoreV1().ResourceQuotas("default").Create(t.Context(), q, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		waitForIdle(t, s)
		got, err := client.CoreV1().ResourceQuotas("default").Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if used := got.Status.Used["requests.cpu"]; used.String() != want {
			t.Errorf("%s CPUs are used, want %s", used.String(), want)
		}
	}
}

// TestClockOfLeases: the garbage collector pauses while a kube-controller-manager holds its lease by the test's clock.
func TestClockOfLeases(t *testing.T) {
	c := clock.New(time.Now())
	s := keelson.ForTest(t, inProcess, func(conf *config.Config) { conf.Testing.Clock = c })
	client := clientset(t, s)
	settle(t, s)
	holder, seconds, now := "other", int32(3600), metav1.NewMicroTime(c.Now())
	lease := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: "kube-controller-manager"},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity: &holder, LeaseDurationSeconds: &seconds, RenewTime: &now, AcquireTime: &now,
		},
	}
	if _, err := client.CoordinationV1().Leases("kube-system").Create(t.Context(), lease, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	hasAccount := func(namespace string) bool {
		_, err := client.CoreV1().ServiceAccounts(namespace).Get(t.Context(), "default", metav1.GetOptions{})
		return err == nil
	}
	create := func(namespace string) {
		t.Helper()
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
		if _, err := client.CoreV1().Namespaces().Create(t.Context(), ns, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	waitForIdle(t, s) // the controllers have paused
	create("a")
	waitForIdle(t, s)
	if hasAccount("a") {
		t.Error("the controllers work although another process holds the lease")
	}
	c.Advance(2 * time.Hour)
	wait.Until(t, "the controllers to work, because the lease has expired", func() bool { return hasAccount("a") })
}
