package main

import (
	"fmt"
	"net/http"
)

// created is an object to create.
type created struct {
	collection, name string
	body             []byte
}

func (c created) path() string { return c.collection + "/" + c.name }

// population is the objects of one or more kinds, which are measured in a small and in a large number.
type population struct {
	row         string // the prefix of its rows
	small, size int
	before      []created // what the objects need
	object      func(i int) created
	list        string // the path of the list that is read and watched
	every       int    // the list has the objects whose number is a multiple of this
	readable    string // the path of an object that RBAC allows the user reader to get; may be empty
}

// listed returns an object of the list when there are objects numbers.
func (p *population) listed(i, objects int) created {
	return p.object(i * p.every % (objects / p.every * p.every))
}

// rows returns the keys of its rows.
func (p *population) rows() []string {
	var keys []string
	for _, suffix := range []string{"create", "memory", "page", "get", "lag", "start", "load", "stream"} {
		keys = append(keys, p.row+"-"+suffix)
	}
	if p.readable != "" {
		keys = append(keys, p.row+"-authorized")
	}
	return keys
}

// readerToken is the token of the user reader, who is in no group with permissions.
const readerToken = "readertoken"

func post(collection string, body []byte) *request {
	return &request{method: http.MethodPost, path: collection, accept: jsonType, contentType: jsonType, body: body}
}

// populations returns the populations of a run.
func populations(o *options) []*population {
	return []*population{configMaps(o.objects), namespaces(), definitions(), permissions()}
}

const namespacesPath = "/api/v1/namespaces"

func namespaceNamed(name string) created {
	return created{namespacesPath, name, fmt.Appendf(nil, `{"metadata":{"name":%q}}`, name)}
}

func configMaps(size int) *population {
	path := namespacesPath + "/scale/configmaps"
	return &population{
		row: "scale", small: size / tenth, size: size, before: []created{namespaceNamed("scale")}, list: path, every: 1,
		object: func(i int) created { return created{path, scaleName(i), scaleObject(i)} },
	}
}

func scaleName(i int) string { return fmt.Sprintf("scale-%07d", i) }

func scaleObject(i int) []byte {
	return configMap(scaleName(i), []int{scaleSmall, scaleLarge}[i%2])
}

func namespaces() *population {
	const size = 10_000
	return &population{
		row: "namespaces", small: size / tenth, size: size, list: namespacesPath, every: 1,
		object: func(i int) created { return namespaceNamed(fmt.Sprintf("scale-%05d", i)) },
	}
}

func definitions() *population {
	const size = 5_000
	return &population{
		row: "definitions", small: size / tenth, size: size, list: definitionsPath, every: 1,
		object: func(i int) created {
			group := fmt.Sprintf("g%02d.bench.example.com", i%definitionGroups)
			body, plural := definitionOf(group, i)
			return created{definitionsPath, plural + "." + group, body}
		},
	}
}

// permissions returns Roles (40 %), RoleBindings (50 %) and ClusterRoleBindings (10 %), each for a user of its own, in a
// hundred namespaces. A RoleBinding allows the user reader to get the ConfigMaps of one of these.
func permissions() *population {
	const size, small, folders, path = 100_000, 1_000, 100, "/apis/rbac.authorization.k8s.io/v1/"
	folder := func(i int) string { return fmt.Sprintf("rbac-%02d", i%folders) }
	object := func(i int) created {
		name := fmt.Sprintf("scale-%06d", i)
		role := func() created {
			return created{path + "namespaces/" + folder(i/2) + "/roles", name, fmt.Appendf(nil,
				`{"metadata":{"name":%q},"rules":[{"apiGroups":[""],"resources":["configmaps"],"verbs":["get"]}]}`, name)}
		}
		binding := func(collection, kind string, to int, user string) created {
			return created{path + collection, name, fmt.Appendf(nil, `{"metadata":{"name":%q},"roleRef":{"apiGroup":`+
				`"rbac.authorization.k8s.io","kind":%q,"name":"scale-%06d"},"subjects":[{"apiGroup":"rbac.authorization.k8s.io",`+
				`"kind":"User","name":%q}]}`, name, kind, to, user)}
		}
		switch {
		case i == 0:
			return binding("namespaces/"+folder(0)+"/rolebindings", "Role", 1, "reader")
		case i%2 == 0:
			return binding("namespaces/"+folder(i/2)+"/rolebindings", "Role", i+1, fmt.Sprintf("user-%d", i))
		case i%10 == 9:
			return binding("clusterrolebindings", "ClusterRole", i, fmt.Sprintf("user-%d", i))
		}
		return role()
	}
	p := &population{
		row: "permissions", small: small, size: size, object: object, list: path + "rolebindings", every: 2,
		readable: namespacesPath + "/" + folder(0) + "/configmaps/kube-root-ca.crt",
	}
	for i := range folders {
		p.before = append(p.before, namespaceNamed(folder(i)))
	}
	return p
}
