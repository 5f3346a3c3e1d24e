package main

import (
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

const namespace = "soak"

// timeAnnotation is an annotation with the time at which a write was sent, in nanoseconds. Watchers compute from it
// how long the event took.
const timeAnnotation = "soak.keelson.dev/sent"

// kind describes the objects of one kind. The number of slots is the number of objects at any time. An object is
// replaced by deleting it and creating one with another name.
type kind struct {
	name  string // of the resource
	path  string // of the collection in the namespace
	slots int
	// weight is the kind's share of the writes that replace objects.
	weight int
	body   func(name, sent string) string
	// generation is the end of the name of each slot's object, which changes when the object is replaced.
	generation []int
	// revision is the resourceVersion of each slot's object, for kinds that are updated.
	revision []string
}

func (k *kind) object(slot int) string {
	return fmt.Sprintf("%s-%d-%d", k.name, slot, k.generation[slot])
}

// filler is text that compresses about as badly as configuration does.
func filler(size int, seed uint64) string {
	const letters = "abcdefghijklmnopqrstuvwxyz0123456789-_=/ "
	rng := rand.New(rand.NewPCG(seed, 1))
	var b strings.Builder
	for range size {
		b.WriteByte(letters[rng.IntN(len(letters))])
	}
	return b.String()
}

// kinds returns the kinds of the load; scale multiplies the number of objects.
func kinds(scale float64) []*kind {
	metadata := func(name, sent string) string {
		return fmt.Sprintf(`"metadata":{"name":%q,"labels":{"app":"soak"},"annotations":{%q:%q}}`, name, timeAnnotation, sent)
	}
	text := filler(1200, 1)
	secret := base64.StdEncoding.EncodeToString([]byte(filler(700, 2)))
	container := `"containers":[{"name":"main","image":"registry.example.com/app:1","env":[{"name":"TEXT","value":"` +
		filler(400, 3) + `"}],"resources":{"requests":{"cpu":"100m","memory":"64Mi"}}}]`
	core, apps := "/api/v1/namespaces/"+namespace+"/", "/apis/apps/v1/namespaces/"+namespace+"/"
	all := []*kind{
		{name: "configmaps", path: core + "configmaps", slots: 2000, weight: 4, body: func(name, sent string) string {
			return `{"apiVersion":"v1","kind":"ConfigMap",` + metadata(name, sent) + `,"data":{"text":"` + text + `"}}`
		}},
		{name: "secrets", path: core + "secrets", slots: 500, weight: 1, body: func(name, sent string) string {
			return `{"apiVersion":"v1","kind":"Secret",` + metadata(name, sent) + `,"data":{"key":"` + secret + `"}}`
		}},
		{name: "pods", path: core + "pods", slots: 2000, weight: 4, body: func(name, sent string) string {
			return `{"apiVersion":"v1","kind":"Pod",` + metadata(name, sent) + `,"spec":{"terminationGracePeriodSeconds":0,` +
				container + `}}`
		}},
		{name: "services", path: core + "services", slots: 200, weight: 1, body: func(name, sent string) string {
			return `{"apiVersion":"v1","kind":"Service",` + metadata(name, sent) + `,"spec":{"selector":{"app":"soak"},` +
				`"ports":[{"port":80}]}}`
		}},
		{name: "deployments", path: apps + "deployments", slots: 500, weight: 1, body: func(name, sent string) string {
			return `{"apiVersion":"apps/v1","kind":"Deployment",` + metadata(name, sent) +
				`,"spec":{"selector":{"matchLabels":{"app":"soak"}},"template":{"metadata":{"labels":{"app":"soak"}},"spec":{` +
				container + `}}}}`
		}},
		{name: "widgets", path: "/apis/soak.keelson.dev/v1/namespaces/" + namespace + "/widgets", slots: 500, weight: 1,
			body: func(name, sent string) string {
				return `{"apiVersion":"soak.keelson.dev/v1","kind":"Widget",` + metadata(name, sent) +
					`,"spec":{"size":3,"text":"` +
					text[:300] + `"}}`
			}},
		{name: "leases", path: "/apis/coordination.k8s.io/v1/namespaces/" + namespace + "/leases", slots: 500,
			body: func(name, sent string) string {
				return leaseBody(name, sent, "")
			}},
		{name: "events", path: core + "events", slots: 5000, weight: 12, body: func(name, sent string) string {
			return `{"apiVersion":"v1","kind":"Event",` + metadata(name, sent) +
				`,"involvedObject":{"kind":"Pod","namespace":"` + namespace +
				`","name":"pod"},"reason":"Started","type":"Normal",` +
				`"message":"Started container main","count":1,"source":{"component":"kubelet"}}`
		}},
	}
	for _, k := range all {
		k.slots = max(10, int(float64(k.slots)*scale))
		k.generation, k.revision = make([]int, k.slots), make([]string, k.slots)
	}
	return all
}

func leaseBody(name, sent, revision string) string {
	return fmt.Sprintf(`{"apiVersion":"coordination.k8s.io/v1","kind":"Lease","metadata":{"name":%q,`+
		`"resourceVersion":%q,"annotations":{%q:%q}},`+
		`"spec":{"holderIdentity":"node","leaseDurationSeconds":40,"renewTime":%q}}`,
		name, revision, timeAnnotation, sent, time.Now().UTC().Format("2006-01-02T15:04:05.000000Z"))
}

// definition is the CustomResourceDefinition of the load.
const definition = `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"widgets.soak.keelson.dev"},
"spec":{"group":"soak.keelson.dev","scope":"Namespaced","names":{"plural":"widgets","singular":"widget",
	"kind":"Widget","listKind":"WidgetList"},
"versions":[{"name":"v1","served":true,"storage":true,"subresources":{"status":{}},
	"schema":{"openAPIV3Schema":{"type":"object","properties":{
"spec":{"type":"object","properties":{"size":{"type":"integer"},"text":{"type":"string"}}},
"status":{"type":"object","properties":{"phase":{"type":"string"}}}}}}}]}}`
