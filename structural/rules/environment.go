// Package rules is what the x-kubernetes-validations of a structural schema mean:
// expressions of the Common Expression Language that are checked and costed when a
// definition is written, and evaluated when an object is (KEP-2876).
package rules

import (
	"fmt"
	"math/rand/v2"
	"sync"

	"github.com/google/cel-go/cel"
	"k8s.io/apimachinery/pkg/util/version"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/environment"
)

// compatibility is the release whose functions and language settings new rules may
// use: the one before the API that is served, so that a rule survives a rollback.
var compatibility = version.MajorMinor(1, 35)

var _ = fmt.Sprint
var _ = rand.IntN
var _ sync.Mutex
var _ cel.Env
var _ apiservercel.DeclType
var _ environment.EnvSet
