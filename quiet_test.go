package keelson_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/keelson-dev/keelson"
)

// ownerLabel is the label of ConfigMaps for which mirror creates a Secret.
const ownerLabel = "owner"

// mirror is a controller. For each ConfigMap with ownerLabel it creates a Secret that the ConfigMap owns. Its
// informer of ConfigMaps is late by lag. It runs until ctx ends.
func mirror(ctx context.Context, client kubernetes.Interface, lag time.Duration) error {
	factory := informers.NewSharedInformerFactory(client, 0)
	maps, secrets := factory.Core().V1().ConfigMaps(), factory.Core().V1().Secrets()
	if err := maps.Informer().SetTransform(func(o any) (any, error) {
		time.Sleep(lag) // the informer is late; the server does not know of this delay
		return o, nil
	}); err != nil {
		return err
	}
	reconcile := func(o any) {
		name, err := cache.ObjectToName(o)
		if err != nil {
			return
		}
		owner, err := maps.Lister().ConfigMaps(name.Namespace).Get(name.Name)
		if err != nil || owner.Labels[ownerLabel] == "" {
			return
		}
		_, _ = client.CoreV1().Secrets(name.Namespace).Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{ // may exist
			Name: name.Name, OwnerReferences: []metav1.OwnerReference{
				{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID},
			},
		}}, metav1.CreateOptions{})
	}
	if _, err := maps.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: reconcile}); err != nil {
		return err
	}
	if _, err := secrets.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{DeleteFunc: reconcile}); err != nil {
		return err
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	<-ctx.Done()
	factory.Shutdown()
	return nil
}

// TestWaitForQuiet runs a controller with a late cache, together with the garbage collector. The collector deletes
// the Secret of a deleted ConfigMap, and the controller creates it again, because its cache still has the
// ConfigMap. After WaitForQuiet both have finished.
func TestWaitForQuiet(t *testing.T) {
	const lag, quiet = 30 * time.Millisecond, time.Second
	s := keelson.ForTest(t, inProcess)
	client := clientset(t, s)
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	ended := make(chan error, 1)
	go func() { ended <- mirror(ctx, client, lag) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	wait := func() {
		t.Helper()
		if err := s.WaitForQuiet(ctx, quiet); err != nil {
			t.Fatal(err)
		}
	}
	wait() // until the informers have started
	owner := configMap("a")
	owner.Labels = map[string]string{ownerLabel: "yes"}
	if _, err := client.CoreV1().ConfigMaps("default").Create(ctx, owner, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	wait()
	if _, err := client.CoreV1().Secrets("default").Get(ctx, "a", metav1.GetOptions{}); err != nil {
		t.Errorf("the controller has not created the Secret: %v", err)
	}
	if err := client.CoreV1().ConfigMaps("default").Delete(ctx, "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	wait()
	if _, err := client.CoreV1().Secrets("default").Get(ctx, "a", metav1.GetOptions{}); !kerrors.IsNotFound(err) {
		t.Errorf("the Secret is still there: %v", err)
	}
	t.Logf("the Secret was created %d times", len(s.Requests(keelson.Match{Verb: "create", Resource: "secrets"})))
}

// TestNotQuiet: the error of WaitForQuiet says why an idle server is not quiet.
func TestNotQuiet(t *testing.T) {
	s := keelson.ForTest(t, inProcess)
	waitForIdle(t, s)
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "last"}} // the server itself watches these
	if _, err := clientset(t, s).RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	waitForIdle(t, s)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err := s.WaitForQuiet(ctx, time.Hour)
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	for _, want := range []string{
		"was less than 1h0m0s ago", "; the last request was create /apis/rbac.authorization.k8s.io/v1/clusterroles/last of ",
		"; the last change was that of clusterroles.rbac.authorization.k8s.io/last:",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v\ndoes not say %q", err, want)
		}
	}
}
