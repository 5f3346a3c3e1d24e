package keelson_test

import (
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson"
)

// TestClock: the test's clock decides about timestamps, how long Events and tokens last, and when the lease of a
// kube-controller-manager has expired.
func TestClock(t *testing.T) {
	began := time.Date(2031, 2, 3, 4, 5, 6, 0, time.UTC)
	clock := keelson.NewClock(began)
	s := keelson.ForTest(t, inProcess, func(c *keelson.Config) { c.Clock = clock })
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
	clock.Advance(59 * time.Minute)
	if err := review(); err != nil || !hasEvent() {
		t.Errorf("after 59 minutes the token is not valid or the event is gone: %v", err)
	}
	clock.Advance(2 * time.Minute)
	eventually(t, func() string {
		if hasEvent() {
			return "the event is still there after 61 minutes"
		}
		return ""
	})
	if err := review(); err != nil {
		t.Errorf("after 61 minutes the token is not valid: %v", err)
	}
	clock.Advance(time.Hour + time.Minute) // tokens are accepted for a minute longer, for clocks that differ
	if err := review(); !kerrors.IsUnauthorized(err) {
		t.Errorf("after two hours the token is valid: %v", err)
	}
}

// TestClockOfLeases: the garbage collector pauses while a kube-controller-manager holds its lease by the test's clock.
func TestClockOfLeases(t *testing.T) {
	clock := keelson.NewClock(time.Now())
	s := keelson.ForTest(t, inProcess, func(c *keelson.Config) { c.Clock = clock })
	client := clientset(t, s)
	settle(t, s)
	holder, seconds, now := "other", int32(3600), metav1.NewMicroTime(clock.Now())
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
	time.Sleep(100 * time.Millisecond) // until the controllers have paused
	create("a")
	time.Sleep(100 * time.Millisecond)
	if hasAccount("a") {
		t.Error("the controllers work although another process holds the lease")
	}
	clock.Advance(2 * time.Hour)
	eventually(t, func() string {
		if !hasAccount("a") {
			return "the controllers do not work although the lease has expired"
		}
		return ""
	})
}
