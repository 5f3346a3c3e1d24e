package server

import (
	"context"
	"fmt"
	"net"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	kerrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/keelson-dev/keelson/crd"
	"github.com/keelson-dev/keelson/crd/convert"
	"github.com/keelson-dev/keelson/registry"
	"github.com/keelson-dev/keelson/rest"
	"github.com/keelson-dev/keelson/webhook"
)

// maxWebhooks is how many clients of webhooks are kept with their connections.
const maxWebhooks = 512

// buildCustom makes what serves custom resources.
func (s *Server) buildCustom(g *registry.Registry, verbs *rest.Handler) *crd.Server {
	options := convert.Options{
		Webhooks: webhook.NewPool(webhook.Options{Resolve: serviceAddress(g)}, maxWebhooks),
	}
	return crd.New(crd.Options{
		Registry: g, Rest: verbs, Exclusive: s.config.Storage != StorageEtcd, Log: s.log,
		Converters: func(name string, spec *apiextensionsv1.CustomResourceDefinitionSpec) (crd.Converter, error) {
			return convert.New(options, name, spec)
		},
	})
}

// serviceAddress finds a Service by its cluster IP, as kube-apiserver does where it
// does not route to endpoints itself.
func serviceAddress(g *registry.Registry) webhook.Resolver {
	return func(ctx context.Context, namespace, name string, port int32) (string, error) {
		obj, err := g.Lookup(ctx, corev1.Resource("services"), namespace, name)
		if err != nil {
			return "", err
		}
		service, ok := obj.(*corev1.Service)
		if !ok {
			return "", fmt.Errorf("service %q not found", name)
		}
		if service.Spec.Type == corev1.ServiceTypeExternalName {
			return net.JoinHostPort(service.Spec.ExternalName, strconv.Itoa(int(port))), nil
		}
		for i := range service.Spec.Ports {
			if service.Spec.Ports[i].Port != port {
				continue
			}
			if ip := service.Spec.ClusterIP; ip != "" && ip != corev1.ClusterIPNone {
				return net.JoinHostPort(ip, strconv.Itoa(int(port))), nil
			}
			return "", fmt.Errorf("service %q has no cluster IP", namespace+"/"+name)
		}
		return "", kerrors.NewServiceUnavailable(fmt.Sprintf("no service port %d found for service %q", port, name))
	}
}
