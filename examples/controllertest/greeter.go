// Package controllertest shows how a controller is tested on a server in the test's own process. The controller writes
// a greeting into each ConfigMap that has the label greet.
package controllertest

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

// Label selects the ConfigMaps that are greeted. Its value is the name in the greeting.
const Label = "greet"

// Run greets ConfigMaps until ctx ends.
func Run(ctx context.Context, client kubernetes.Interface) error {
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0,
		informers.WithTweakListOptions(func(o *metav1.ListOptions) { o.LabelSelector = Label }))
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[cache.ObjectName]())
	defer queue.ShutDown()
	maps := factory.Core().V1().ConfigMaps()
	add := func(o any) {
		if name, err := cache.ObjectToName(o); err == nil {
			queue.Add(name)
		}
	}
	if _, err := maps.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: add, UpdateFunc: func(_, o any) { add(o) },
	}); err != nil {
		return err
	}
	factory.Start(ctx.Done())
	defer factory.Shutdown()
	factory.WaitForCacheSync(ctx.Done())
	stop := context.AfterFunc(ctx, queue.ShutDown)
	defer stop()
	for {
		name, ended := queue.Get()
		if ended {
			return nil
		}
		found, err := maps.Lister().ConfigMaps(name.Namespace).Get(name.Name)
		if err == nil {
			err = greet(ctx, client, found)
		}
		if err == nil || kerrors.IsNotFound(err) {
			queue.Forget(name)
		} else {
			queue.AddRateLimited(name)
		}
		queue.Done(name)
	}
}

// greet writes the greeting, unless it is there.
func greet(ctx context.Context, client kubernetes.Interface, found *corev1.ConfigMap) error {
	greeting := fmt.Sprintf("Hello, %s!", found.Labels[Label])
	if found.Data["greeting"] == greeting {
		return nil
	}
	change := found.DeepCopy()
	if change.Data == nil {
		change.Data = map[string]string{}
	}
	change.Data["greeting"] = greeting
	_, err := client.CoreV1().ConfigMaps(found.Namespace).Update(ctx, change, metav1.UpdateOptions{})
	return err
}
