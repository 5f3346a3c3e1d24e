package celrules

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// listSchema returns a schema with a list of at most n integers at spec.l and rules on spec.
func listSchema(n int, rules ...string) string {
	return fmt.Sprintf(`{"type":"object","properties":{"spec":{"type":"object",
		"properties":{"l":{"type":"array","maxItems":%d,"items":{"type":"integer"}}},
		"x-kubernetes-validations":[%s]}}}`, n, strings.Join(rules, ","))
}

func listObject(n int) map[string]any {
	l := make([]any, n)
	for i := range l {
		l[i] = int64(1)
	}
	return map[string]any{"spec": map[string]any{"l": l}}
}

const (
	quadratic = `{"rule":"self.l.all(x, self.l.all(y, x == y))"}`
	advice    = " (try simplifying the rule, or adding maxItems, maxProperties, and maxLength where " +
		"arrays, maps, and strings are declared)"
)

func repeat(rule string, n int) []string {
	rules := make([]string, n)
	for i := range rules {
		rules[i] = rule
	}
	return rules
}

func compareErrors(t *testing.T, errs field.ErrorList, want ...string) {
	t.Helper()
	var got []string
	for _, e := range errs {
		got = append(got, e.Error())
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestExpensiveRulesAreRefused(t *testing.T) {
	s := parseSchema(t, listSchema(1500, quadratic))
	compareErrors(t, Check(s, CheckOptions{Path: field.NewPath("schema"), Root: true}),
		"schema.properties[spec].x-kubernetes-validations[0].rule: Forbidden: estimated rule cost exceeds "+
			"budget by factor of 1.125900x"+advice)
}

func TestExpensiveRulesOfUnchangedSchemasStay(t *testing.T) {
	s := parseSchema(t, listSchema(1500, quadratic))
	compareErrors(t, Check(s, CheckOptions{Path: field.NewPath("schema"), Root: true, Unchanged: true}))
}

func TestRulesThatAreTooExpensiveTogetherAreRefused(t *testing.T) {
	rules := append(repeat(quadratic, 11), `{"rule":"self.l.all(x, x == 1)"}`)
	s := parseSchema(t, listSchema(1400, rules...))
	path := "schema.properties[spec].x-kubernetes-validations[%d].rule: Forbidden: contributed to estimated rule cost " +
		"total exceeding cost limit for entire OpenAPIv3 schema"
	for _, unchanged := range []bool{false, true} {
		errs := Check(s, CheckOptions{Path: field.NewPath("schema"), Root: true, Unchanged: unchanged})
		compareErrors(t, errs, fmt.Sprintf(path, 0), fmt.Sprintf(path, 1), fmt.Sprintf(path, 2), fmt.Sprintf(path, 3),
			"schema: Forbidden: x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema "+
				"exceeds budget by factor of 1.078980x"+advice)
	}
}

func TestCostsDoNotOverflow(t *testing.T) {
	s := parseSchema(t, `{"type":"object","properties":{"a":{"type":"array","maxItems":4000000000,"items":{"type":"array","maxItems":4000000000,
		"items":{"type":"array","maxItems":4000000000,"items":{"type":"string","x-kubernetes-validations":[
		{"rule":"self == 'a'"},{"rule":"self == 'a'"}]}}}}}}`)
	path := "schema.properties[a].items.items.items.x-kubernetes-validations[%d].rule: Forbidden: %s"
	own := "estimated rule cost exceeds budget by factor of more than 100x" + advice
	part := "contributed to estimated rule cost total exceeding cost limit for entire OpenAPIv3 schema"
	compareErrors(t, Check(s, CheckOptions{Path: field.NewPath("schema"), Root: true}),
		fmt.Sprintf(path, 0, own), fmt.Sprintf(path, 1, own), fmt.Sprintf(path, 0, part), fmt.Sprintf(path, 1, part),
		"schema: Forbidden: x-kubernetes-validations estimated rule cost total for entire OpenAPIv3 schema "+
			"exceeds budget by factor of more than 100x"+advice)
}

func TestCallsOverTheLimitEndTheEvaluation(t *testing.T) {
	v := Compile(parseSchema(t, listSchema(1500, quadratic, `{"rule":"false","message":"never seen"}`)), true)
	errs, remaining := v.Validate(context.Background(), nil, listObject(500), nil, Budget)
	compareErrors(
		t, errs,
		`spec: Invalid value: "object": 'operation cancelled: actual cost limit exceeded': no further validation rules `+
			`will be run due to call cost exceeds limit for rule: self.l.all(x, self.l.all(y, x == y))`,
	)
	if remaining >= 0 {
		t.Errorf("%d of the budget remain", remaining)
	}
}

func TestMessagesOverTheLimitEndTheEvaluation(t *testing.T) {
	message := `self.l.all(x, self.l.all(y, x == y)) ? 'a' : 'b'`
	v := Compile(parseSchema(t, listSchema(1500,
		`{"rule":"self.l.size() == 0","messageExpression":"`+message+`"}`, `{"rule":"false","message":"never seen"}`)), true)
	errs, remaining := v.Validate(context.Background(), nil, listObject(1400), nil, Budget)
	compareErrors(
		t, errs,
		`spec: Invalid value: "object": no further validation rules will be run due to call cost exceeds limit for `+
			`messageExpression: "`+message+`"`,
	)
	if remaining >= 0 {
		t.Errorf("%d of the budget remain", remaining)
	}
}

func TestRulesOverTheBudgetEndTheEvaluation(t *testing.T) {
	if Budget != 10_000_000 {
		t.Errorf("the budget of a request is %d", Budget)
	}
	v := Compile(
		parseSchema(t, listSchema(1000, append(repeat(quadratic, 5), `{"rule":"false","message":"never seen"}`)...)), true,
	)
	_, whole := v.Validate(context.Background(), nil, listObject(10), nil, Budget)
	errs, remaining := v.Validate(context.Background(), nil, listObject(10), nil, (Budget-whole)/2)
	compareErrors(
		t, errs,
		`spec: Invalid value: "object": validation failed due to running out of cost budget,`+
			` no further validation rules will be run`,
	)
	if remaining >= 0 {
		t.Errorf("%d of the budget remain", remaining)
	}
}

func TestMessagesOverTheBudgetEndTheEvaluation(t *testing.T) {
	v := Compile(parseSchema(t, listSchema(10,
		`{"rule":"self.l.size() == 0","messageExpression":"self.l.map(x, string(x)).join(', ')"}`,
		`{"rule":"false","message":"never seen"}`)), true)
	errs, _ := v.Validate(context.Background(), nil, listObject(9), nil, 10)
	compareErrors(
		t, errs,
		`spec: Invalid value: "object": messageExpression evaluation failed due to running out of cost budget,`+
			` no further validation rules will be run`,
	)
}

func TestABudgetIsSharedByCalls(t *testing.T) {
	v := Compile(parseSchema(t, listSchema(10, quadratic)), true)
	_, remaining := v.Validate(context.Background(), nil, listObject(3), nil, Budget)
	cost := Budget - remaining
	if cost <= 0 {
		t.Fatalf("the rule costs %d", cost)
	}
	if errs, remaining := v.Validate(context.Background(), nil, listObject(3), nil, cost); len(errs) > 0 ||
		remaining != 0 {
		t.Errorf("got %v with %d left", errs, remaining)
	}
	errs, _ := v.Validate(context.Background(), nil, listObject(3), nil, 0)
	compareErrors(
		t, errs,
		`spec: Invalid value: "object": validation failed due to running out of cost budget,`+
			` no further validation rules will be run`,
	)
}

func TestTheEndOfTheContextEndsRules(t *testing.T) {
	v := Compile(parseSchema(t, listSchema(1000, quadratic)), true)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	errs, _ := v.Validate(ctx, nil, listObject(450), nil, Budget)
	compareErrors(t, errs, `spec: Invalid value: "object": operation interrupted: context canceled `+
		`evaluating rule: self.l.all(x, self.l.all(y, x == y))`)
}
