package celrules

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// textSchema returns a schema with a string at spec.s and rules on spec.
func textSchema(rules ...string) string {
	var list []string
	for _, rule := range rules {
		list = append(list, fmt.Sprintf(`{"rule":%q,"message":"m"}`, rule))
	}
	return fmt.Sprintf(`{"type":"object","properties":{"spec":{"type":"object",
		"properties":{"s":{"type":"string","maxLength":2000}},"x-kubernetes-validations":[%s]}}}`, strings.Join(list, ","))
}

// TestResultsOfCallsAreBounded evaluates rules whose calls would make large results from small arguments. Each must
// fail, and use little memory and time.
func TestResultsOfCallsAreBounded(t *testing.T) {
	const most = 100 << 20
	grow := ".replace('a', '" + strings.Repeat("a", 1100) + "')"
	for name, rule := range map[string]string{
		"replace": "size(self.s" + strings.Repeat(grow, 2) + ") > 0",
		"replace, between": "size(self.s" + strings.Repeat(
			".replace('', 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa')", 5,
		) + ") > 0",
		"join":       "size([self.s" + grow + "].map(x, [x, x, x, x, x, x].join(x)).join('')) > 0",
		"precision":  "size('%.1000000000f'.format([1.0])) > 0",
		"quantity":   "quantity('1e-99999' + '9999') == quantity('1')",
		"isQuantity": "isQuantity(self.s + 'E011110011110')",
		"range":      "size(lists.range(1000000000)) > 0",
	} {
		v := Compile(parseSchema(t, textSchema(rule)), true)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		text := strings.Repeat("a", 1000)
		if name == "isQuantity" {
			text = "1"
		}
		errs, _ := v.Validate(context.Background(), nil, map[string]any{"spec": map[string]any{"s": text}}, nil, Budget)
		runtime.ReadMemStats(&after)
		if taken := after.TotalAlloc - before.TotalAlloc; taken > most {
			t.Errorf("%s: %d MiB", name, taken>>20)
		}
		want := "larger than"
		if strings.Contains(strings.ToLower(name), "quantity") {
			want = "suffix"
		}
		if len(errs) != 1 || !strings.Contains(errs[0].Error(), want) {
			t.Errorf("%s: %.400v", name, errs)
		}
	}
}

// TestBoundedCallsGiveTheirResults evaluates the same functions with results below the bounds.
func TestBoundedCallsGiveTheirResults(t *testing.T) {
	for _, rule := range []string{
		"self.s.replace('a', 'bc') == 'bcbc'", "self.s.replace('a', 'b', 1) == 'ba'", "['a', 'b'].join('-') == 'a-b'",
		"['a', 'b'].join() == 'ab'",
		"'%s %.2f %d'.format([self.s, 1.5, 2]) == 'aa 1.50 2'", "quantity('1k').isGreaterThan(quantity('1'))",
		"isQuantity('1k')", "!isQuantity('x')",
		"[1] + [2] == [1, 2]", "self.s + 'b' == 'aab'", "1 + 2 == 3", "b'a' + b'b' == b'ab'", "dyn(1) + dyn(2) == 3",
		"timestamp('2020-01-01T00:00:00Z') + duration('1h') == timestamp('2020-01-01T01:00:00Z')",
		"[1, 2].map(x, x + 1) == [2, 3]",
	} {
		v := Compile(parseSchema(t, textSchema(rule)), true)
		if errs, _ := v.Validate(
			context.Background(), nil, map[string]any{"spec": map[string]any{"s": "aa"}}, nil, Budget,
		); len(errs) > 0 {
			t.Errorf("%s: %v", rule, errs)
		}
	}
}

// TestTextIsPaid evaluates rules that make much text of a large list, once for each of its items. The evaluation
// must end when the cost of the text exceeds the limit of one evaluation, or the budget of all rules of the
// object.
func TestTextIsPaid(t *testing.T) {
	const items = 2000
	const schema = `{"type":"object","properties":{"spec":{"type":"object","properties":{
		"all":{"type":"array","maxItems":4000,"items":{"type":"string","maxLength":40}},
		"each":{"type":"array","maxItems":4000,"items":{"type":"string","maxLength":40}}},
		"x-kubernetes-validations":[{"rule":%q,"message":"m"}]}}}`
	var list []any
	for range items {
		list = append(list, strings.Repeat("x", 20))
	}
	object := map[string]any{"spec": map[string]any{"all": list, "each": list}}
	for rule, want := range map[string]string{
		`self.each.all(x, '%s'.format([self.all]).size() > 0)`:            "call cost exceeds limit",
		`self.each.all(x, x.replace('', self.all.join('')).size() > 0)`:   "call cost exceeds limit",
		`self.each.all(x, '%s is %s'.format([x, 'short']).size() > 0)`:    "",
		`'%s'.format([self.all]).size() > 0`:                              "",
		`self.each.all(x, x.replace('x', 'yz').size() == 40)`:             "",
		`self.all.join(',').size() > 0 && self.all.all(x, x + 'y' != '')`: "",
	} {
		v := Compile(parseSchema(t, fmt.Sprintf(schema, rule)), true)
		errs, _ := v.Validate(context.Background(), nil, object, nil, Budget)
		if want == "" && len(errs) > 0 || want != "" && (len(errs) != 1 || !strings.Contains(errs[0].Error(), want)) {
			t.Errorf("%s: %.300v, want %q", rule, errs, want)
		}
	}
}
