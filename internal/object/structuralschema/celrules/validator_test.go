package celrules

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/keelson-dev/keelson/internal/object/structuralschema"
)

func TestSchemasWithoutRulesHaveNoValidator(t *testing.T) {
	v := Compile(parseSchema(t, `{"type":"object","properties":{"a":{"type":"string"}}}`), true)
	if v != nil {
		t.Error("there is one")
	}
	errs, remaining := v.Validate(context.Background(), nil, map[string]any{"a": "x"}, nil, 7)
	if len(errs) > 0 || remaining != 7 {
		t.Errorf("got %v and %d", errs, remaining)
	}
}

func TestRulesBelowInvisibleFieldsAreOmitted(t *testing.T) {
	s := parseSchema(t, `{"type":"object","properties":{"a":{"x-kubernetes-preserve-unknown-fields":true,
		"properties":{"b":{"type":"string","x-kubernetes-validations":[{"rule":"false"}]}}}}}`)
	errs, _ := Compile(s, true).Validate(
		context.Background(), nil, map[string]any{"a": map[string]any{"b": "x"}}, nil, Budget,
	)
	compareErrors(t, errs)
}

func TestRulesAreCompiledOnceByAllWhoNeedThem(t *testing.T) {
	v := Compile(parseSchema(t, listSchema(10, quadratic, `{"rule":"oldSelf == self"}`)), true)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for n := range 20 {
				object := listObject(n % 10)
				errs, _ := v.Validate(context.Background(), nil, object, listObject((n+i%2)%10), Budget)
				if changed := i%2 == 1; changed != (len(errs) > 0) {
					t.Errorf("changed is %v: %v", changed, errs)
				}
			}
		})
	}
	wg.Wait()
}

func TestATypedNilIsNoOldObject(t *testing.T) {
	v := Compile(
		parseSchema(t, listSchema(10, `{"rule":"self == oldSelf"}`, `{"rule":"self.l.size() > 1","message":"two"}`)), true,
	)
	var none map[string]any
	errs, _ := v.Validate(context.Background(), nil, listObject(1), none, Budget)
	compareErrors(t, errs, `spec: Invalid value: two`)
}

func TestFieldPathIsBelowPathOfObject(t *testing.T) {
	v := Compile(
		parseSchema(t, listSchema(10, `{"rule":"self.l.size() > 1","fieldPath":".l","reason":"FieldValueRequired"}`)), true,
	)
	errs, _ := v.Validate(context.Background(), field.NewPath("root").Index(3), listObject(1), nil, Budget)
	compareErrors(t, errs, `root[3].spec.l: Required value: failed rule: self.l.size() > 1`)
}

func TestRulesAboveErrorsInTheSchemaAreNotCompiled(t *testing.T) {
	s := parseSchema(t, `{"type":"object","x-kubernetes-validations":[{"rule":"bad root"}],"properties":{
		"a":{"type":"object","x-kubernetes-validations":[{"rule":"bad a"}],
			"properties":{"b":{"type":"string","x-kubernetes-validations":[{"rule":"self.x"}]}}},
		"ab":{"type":"string","x-kubernetes-validations":[{"rule":"self + 1 == 2"}]}}}`)
	path := field.NewPath("schema")
	places := func(o CheckOptions) string {
		o.Path, o.Root = path, true
		out := ""
		for _, e := range Check(s, o) {
			out += e.Field + "\n"
		}
		return out
	}
	rule := ".x-kubernetes-validations[0].rule\n"
	a, b, ab := "schema.properties[a]"+rule, "schema.properties[a].properties[b]"+rule, "schema.properties[ab]"+rule
	if got, want := places(CheckOptions{}), b+a+ab+"schema"+rule; got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	flawed := []*field.Path{path.Child("properties").Key("a")}
	if got, want := places(CheckOptions{Flawed: flawed}), b+ab; got != want {
		t.Errorf("with an error at a: got\n%swant\n%s", got, want)
	}
}

func TestTextsOfRulesBelowNot(t *testing.T) {
	s := parseSchema(
		t, `{"type":"string","x-kubernetes-validations":[{"rule":"bad(","fieldPath":".none","message":"a\nb"}]}`,
	)
	path := field.NewPath("schema").Child("not")
	compareErrors(t, CheckTexts(path, s.Rules, nil),
		`schema.not.x-kubernetes-validations[0].message: Invalid value: "a\nb": must not contain line breaks`)
	compareErrors(t, CheckTexts(path, s.Rules, s),
		`schema.not.x-kubernetes-validations[0].message: Invalid value: "a\nb": must not contain line breaks`,
		`schema.not.x-kubernetes-validations[0].fieldPath: Invalid value: ".none": must be a valid path`)
}

func TestCacheSharesValidatorsInUse(t *testing.T) {
	var c Cache
	s := parseSchema(t, listSchema(10, quadratic))
	v := c.Compile(s, true)
	if c.Compile(s, true) != v {
		t.Error("the validator is another")
	}
	if c.Compile(s, false) == v {
		t.Error("one that is not of a resource is the same")
	}
	if c.Compile(&structuralschema.Schema{Type: "string"}, true) != nil {
		t.Error("a schema without rules has a validator")
	}
	runtime.KeepAlive(v)
	v = nil
	for n := 0; c.Size() > 0; n++ {
		if n == 1000 {
			t.Fatal("it keeps them")
		}
		runtime.GC() // cleanups run some time after it
		time.Sleep(time.Millisecond)
	}
}

func ExampleValidator_Validate() {
	s, err := structuralschema.New(tenRules(nil))
	if err != nil {
		fmt.Println(err)
		return
	}
	object := tenRulesObject()
	object["spec"].(map[string]any)["name"] = "n2"
	errs, _ := Compile(s, true).Validate(context.Background(), nil, object, nil, Budget)
	fmt.Println(errs.ToAggregate())
	// Output: <nil>: Invalid value: failed rule: self.metadata.name == self.spec.name
}
