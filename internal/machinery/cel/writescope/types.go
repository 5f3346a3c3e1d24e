package writescope

import (
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/traits"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/library"

	"github.com/keelson-dev/keelson/internal/machinery/cel"
)

// The names of the variables.
const (
	Object                    = "object"
	OldObject                 = "oldObject"
	Params                    = "params"
	Request                   = "request"
	Namespace                 = "namespaceObject"
	Authorizer                = "authorizer"
	RequestResourceAuthorizer = "authorizer.requestResource"
	Variables                 = "variables"
)

func opaque(typ *types.Type) *apiservercel.DeclType {
	return apiservercel.NewSimpleTypeWithMinSize(typ.TypeName(), typ, nil, 0)
}

func authorizerVariables() []cel.Variable {
	return []cel.Variable{
		{Name: Authorizer, Type: opaque(library.AuthorizerType)},
		{Name: RequestResourceAuthorizer, Type: opaque(library.ResourceCheckType)},
	}
}

// members are the fields of a type; those in optional may be absent.
type members map[string]*apiservercel.DeclType

func object(name string, required, optional members) *apiservercel.DeclType {
	fields := map[string]*apiservercel.DeclField{}
	for name, typ := range required {
		fields[name] = apiservercel.NewDeclField(name, typ, true, nil, nil)
	}
	for name, typ := range optional {
		fields[name] = apiservercel.NewDeclField(name, typ, false, nil, nil)
	}
	return apiservercel.NewObjectType("kubernetes."+name, fields)
}

func list(of *apiservercel.DeclType) *apiservercel.DeclType { return apiservercel.NewListType(of, -1) }

func mapOf(values *apiservercel.DeclType) *apiservercel.DeclType {
	return apiservercel.NewMapType(apiservercel.StringType, values, -1)
}

// requestType is the type of request: an AdmissionRequest without uid, object and oldObject.
func requestType() *apiservercel.DeclType {
	text := apiservercel.StringType
	kind := object("GroupVersionKind", members{"group": text, "version": text, "kind": text}, nil)
	resource := object("GroupVersionResource", members{"group": text, "version": text, "resource": text}, nil)
	user := object("UserInfo", nil, members{
		"username": text, "uid": text, "groups": list(text), "extra": mapOf(list(text)),
	})
	return object("AdmissionRequest", members{
		"kind": kind, "resource": resource, "requestKind": kind, "requestResource": resource, "name": text,
		"operation": text, "userInfo": user,
	}, members{
		"subResource": text, "requestSubResource": text, "namespace": text, "dryRun": apiservercel.BoolType,
		"options": apiservercel.DynType,
	})
}

// namespaceType is the type of namespaceObject: a Namespace without managedFields and ownerReferences.
func namespaceType() *apiservercel.DeclType {
	text, number, instant := apiservercel.StringType, apiservercel.IntType, apiservercel.TimestampType
	condition := object("NamespaceCondition", members{
		"status": text, "type": text, "lastTransitionTime": instant, "message": text, "reason": text,
	}, nil)
	metadata := object("NamespaceMetadata", members{
		"name": text, "generateName": text, "namespace": text, "labels": mapOf(text), "annotations": mapOf(text),
		"UID": text, "creationTimestamp": instant, "deletionGracePeriodSeconds": number, "deletionTimestamp": instant,
		"generation": number, "resourceVersion": text, "finalizers": list(text),
	}, nil)
	return object("Namespace", members{
		"metadata": metadata,
		"spec":     object("NamespaceSpec", members{"finalizers": list(text)}, nil),
		"status":   object("NamespaceStatus", members{"conditions": list(condition), "phase": text}, nil),
	}, nil)
}

// simpleTypes are the declared types of all types without parameters, and of an expression that could not be compiled.
var simpleTypes = map[*types.Type]*apiservercel.DeclType{
	nil: apiservercel.DynType, types.AnyType: apiservercel.AnyType, types.BoolType: apiservercel.BoolType,
	types.BytesType: apiservercel.BytesType, types.DoubleType: apiservercel.DoubleType,
	types.DurationType: apiservercel.DurationType, types.IntType: apiservercel.IntType,
	types.NullType: apiservercel.NullType, types.StringType: apiservercel.StringType,
	types.TimestampType: apiservercel.TimestampType, types.UintType: apiservercel.UintType,
}

// declared returns the declared type of a variable of a policy. Types that cannot be declared, and a nil type (the
// expression could not be compiled), become dynamic.
func declared(typ *types.Type) *apiservercel.DeclType {
	if known := simpleTypes[typ]; known != nil {
		return known
	}
	if typ.HasTrait(traits.ContainerType) && typ.HasTrait(traits.IndexerType) {
		switch of := typ.Parameters(); len(of) {
		case 1:
			return list(declared(of[0]))
		case 2:
			return apiservercel.NewMapType(declared(of[0]), declared(of[1]), -1)
		}
	}
	return apiservercel.DynType
}
