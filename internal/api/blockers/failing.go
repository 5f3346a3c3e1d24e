package blockers

import (
	"context"
	"fmt"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/keelson-dev/keelson/internal/access/admission"
	"github.com/keelson-dev/keelson/internal/access/admission/plugin/webhooks"
	"github.com/keelson-dev/keelson/internal/api/client"
	"github.com/keelson-dev/keelson/internal/object/registry"
)

var apiServices = apiregistrationv1.SchemeGroupVersion.WithResource("apiservices")

// failingWebhook is a webhook that fails, with the writes that it is called for, such as "deletions of the object".
type failingWebhook struct {
	webhooks.Failing
	writes []string
}

// subresources returns the names of the subresources by which controllers change the object: status and finalize,
// if it has them.
func (s *search) subresources() (names []string) {
	for _, name := range []string{"status", "finalize"} {
		if s.served.Kind.Subresource(name) != nil {
			names = append(names, name)
		}
	}
	return names
}

// webhooksOf collects the failing webhooks that are called for the deletion and for updates of an object. what is
// the name of the object in messages.
func (s *search) webhooksOf(
	ctx context.Context, gvr schema.GroupVersionResource, gvk schema.GroupVersionKind, obj registry.Object, what string,
	subresources ...string,
) {
	if s.Webhooks == nil {
		return
	}
	write := admission.Attributes{
		Operation: admission.Delete, Resource: gvr.GroupResource(), Requested: admission.Names{Kind: gvk, Resource: gvr},
		Namespace: obj.GetNamespace(), Name: obj.GetName(), Old: obj,
	}
	s.webhooksOfWrite(ctx, &write, "deletions of "+what)
	write.Operation, write.Object = admission.Update, obj
	for _, write.Subresource = range append([]string{""}, subresources...) {
		name := "updates of " + what
		if write.Subresource != "" {
			name += " by its subresource " + write.Subresource
		}
		s.webhooksOfWrite(ctx, &write, name)
	}
}

func (s *search) webhooksOfWrite(ctx context.Context, write *admission.Attributes, name string) {
	failing, err := s.Webhooks(ctx, write)
	if err != nil {
		s.notExamined("It is not known whether failing webhooks are called for %s.", name)
	}
	for _, f := range failing {
		i := slices.IndexFunc(s.failing, func(k *failingWebhook) bool {
			return k.Resource == f.Resource && k.Configuration == f.Configuration && k.Name == f.Name
		})
		if i < 0 {
			i = len(s.failing)
			s.failing = append(s.failing, &failingWebhook{Failing: f})
		}
		s.failing[i].writes = append(s.failing[i].writes, name)
	}
}

// webhooksOfFirst collects the failing webhooks that are called for the first object of a scan. The other objects
// are not read: the same webhooks are taken to be called for them.
func (s *search) webhooksOfFirst(ctx context.Context, f found) {
	first := slices.Concat(f.holding, f.others)[0]
	if s.Webhooks == nil || s.reads >= maxReads {
		return
	}
	s.reads++
	obj, err := s.Client.Get(ctx, client.Ref{Resource: f.GroupVersionResource, Namespace: first.Namespace, Name: first.Name})
	if err != nil {
		s.unreadable(ctx, err, f.GroupVersionResource, first.Namespace)
		return
	}
	s.webhooksOf(ctx, f.GroupVersionResource, f.GroupVersion().WithKind(f.Kind), obj, "objects of "+f.GroupResource().String())
}

// addWebhooks adds the webhooks that were collected.
func (s *search) addWebhooks(ctx context.Context) {
	hidden := 0
	for _, f := range s.failing {
		gvr := admissionregistrationv1.SchemeGroupVersion.WithResource(f.Resource)
		if !s.mayList(ctx, gvr, "") {
			hidden++
			continue
		}
		effect := "the writes are refused"
		if f.Ignore {
			effect = "the writes wait for it and then go on"
		}
		condition := ""
		if f.Conditional {
			condition = ", if its matchConditions match"
		}
		s.add(Blocker{
			Type: Webhook, Name: f.Name, Since: &metav1.Time{Time: f.Since}, Owner: "the webhook of " + f.Resource + "/" + f.Configuration,
			Message: fmt.Sprintf("It fails and is called for %s%s; %s. The last error: %s",
				strings.Join(f.writes, ", "), condition, effect, f.Error),
			Count: 1, Objects: []Object{reference(gvr, "", f.Configuration)},
		})
	}
	if hidden > 0 {
		s.add(Blocker{
			Type: Webhook, Name: "webhooks", Count: hidden,
			Message: fmt.Sprintf("Such writes call failing webhooks: %d. You may not list their configurations.", hidden),
		})
	}
}

// addAPIServices adds the APIServices that are not available. While one is not available, its resources are not
// known, and no namespace is deleted.
func (s *search) addAPIServices(ctx context.Context) {
	may, hidden := s.mayList(ctx, apiServices, ""), 0
	_, err := s.Client.List(ctx, client.ListRequest{Resource: apiServices}, func(obj registry.Object) bool {
		service := obj.(*apiregistrationv1.APIService)
		for _, c := range service.Status.Conditions {
			switch {
			case c.Type != apiregistrationv1.Available || c.Status == apiregistrationv1.ConditionTrue:
			case !may:
				hidden++
			default:
				s.add(Blocker{
					Type: APIService, Name: service.Name, Since: &c.LastTransitionTime, Owner: "the server behind the APIService",
					Message: fmt.Sprintf("It is not available, so what it has in the namespace is not known: %s: %s", c.Reason, shorten(c.Message)),
					Count:   1, Objects: []Object{reference(apiServices, "", service.Name)},
				})
			}
		}
		return true
	})
	s.unreadable(ctx, err, apiServices, "")
	if hidden > 0 {
		s.add(Blocker{
			Type: APIService, Name: "apiservices", Count: hidden,
			Message: fmt.Sprintf("Not available: %s; you may not list them.", counted(hidden, apiServices.GroupResource().String())),
		})
	}
}
