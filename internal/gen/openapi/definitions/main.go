// Definitions prints the OpenAPI v3 definitions of the types of the built-in API
// as a JSON object, made by kube-openapi's generator from the source of the API modules:
//
//	cd internal/gen/openapi/definitions && go generate && go run . > /tmp/definitions.json
//
// It is a module of its own, so that the project does not depend on the generator. The program in ../ compares recorded
// documents with its output.
package main

//go:generate go tool openapi-gen --output-dir generated --output-pkg github.com/keelson-dev/keelson/internal/gen/openapi/definitions/generated --output-file generated.go --go-header-file header.txt -r /dev/null k8s.io/api/admissionregistration/v1 k8s.io/api/admissionregistration/v1alpha1 k8s.io/api/admissionregistration/v1beta1 k8s.io/api/apiserverinternal/v1alpha1 k8s.io/api/apps/v1 k8s.io/api/authentication/v1 k8s.io/api/authorization/v1 k8s.io/api/autoscaling/v1 k8s.io/api/autoscaling/v2 k8s.io/api/batch/v1 k8s.io/api/certificates/v1 k8s.io/api/certificates/v1alpha1 k8s.io/api/certificates/v1beta1 k8s.io/api/coordination/v1 k8s.io/api/coordination/v1alpha2 k8s.io/api/coordination/v1beta1 k8s.io/api/core/v1 k8s.io/api/discovery/v1 k8s.io/api/events/v1 k8s.io/api/flowcontrol/v1 k8s.io/api/lifecycle/v1alpha1 k8s.io/api/networking/v1 k8s.io/api/networking/v1beta1 k8s.io/api/node/v1 k8s.io/api/policy/v1 k8s.io/api/rbac/v1 k8s.io/api/resource/v1 k8s.io/api/resource/v1alpha3 k8s.io/api/resource/v1beta1 k8s.io/api/resource/v1beta2 k8s.io/api/scheduling/v1 k8s.io/api/scheduling/v1alpha3 k8s.io/api/scheduling/v1beta1 k8s.io/api/storage/v1 k8s.io/api/storage/v1beta1 k8s.io/api/storagemigration/v1 k8s.io/api/storagemigration/v1beta1 k8s.io/apimachinery/pkg/api/resource k8s.io/apimachinery/pkg/apis/meta/v1 k8s.io/apimachinery/pkg/runtime k8s.io/apimachinery/pkg/util/intstr k8s.io/apimachinery/pkg/version k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1 k8s.io/kube-aggregator/pkg/apis/apiregistration/v1

import (
	"encoding/json"
	"log"
	"maps"
	"os"
	"slices"

	"k8s.io/kube-openapi/pkg/builder3"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/keelson-dev/keelson/internal/gen/openapi/definitions/generated"
)

func main() {
	log.SetFlags(0)
	noRef := func(string) spec.Ref { return spec.Ref{} }
	names := slices.Sorted(maps.Keys(generated.GetOpenAPIDefinitions(noRef)))
	schemas, err := builder3.BuildOpenAPIDefinitionsForResources(&common.OpenAPIV3Config{
		Info:              &spec.Info{},
		GetDefinitions:    generated.GetOpenAPIDefinitions,
		GetDefinitionName: func(name string) (string, spec.Extensions) { return name, nil },
	}, names...)
	if err != nil {
		log.Fatal(err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(schemas); err != nil {
		log.Fatal(err)
	}
}
