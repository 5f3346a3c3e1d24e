package cel

import (
	"encoding/json"
	"fmt"
	"testing"

	celgo "github.com/google/cel-go/cel"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	apiservercel "k8s.io/apiserver/pkg/cel"
	"k8s.io/apiserver/pkg/cel/common"
	"k8s.io/apiserver/pkg/cel/openapi"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// expressions use at least one function of each library. Their variable self has the type
// and the value of testSelf.
var expressions = []string{
	// the language
	`self.n + 1 == 8 && !(self.n > 8) || self.n in [1, 2]`,
	`self.n == 7 ? self.d < 1.5 : self.d > 2.0`,
	`-self.n % 4 == -3 && self.n / 2 == 3 && self.n * 2 - 1 == 13`,
	`self.n / 0 == 1`,
	`self.list[9] == 'x'`,
	`self.map['none'] == 'x'`,
	`has(self.s) && !has(self.none)`,
	`size(self.s) == self.s.size() && self.list.size() == 3`,
	`int('7') == self.n && string(self.n) == '7' && double(self.n) == 7.0 && uint(self.n) == 7u`,
	`bytes(self.s).size() == 3 && type(self.n) == int && dyn(self.n) == 7.0`,
	`self.list.all(x, x.size() == 1) && self.list.exists(x, x == 'b') && self.list.exists_one(x, x == 'b')`,
	`self.list.map(x, x + '!') == ['a!', 'b!', 'c!'] && self.list.filter(x, x > 'a').size() == 2`,
	`self.map.all(k, self.map[k] == 'v')`,
	`self.map == {'k': 'v'} && {'a': 1}.a == 1 && 'k' in self.map`,
	`self.intstr == 'x' || self.intstr > 1`,
	`duration('1h') + duration('30m') == duration('90m') && duration('90m').getMinutes() == 90`,
	`timestamp('2020-01-01T00:00:00Z') + duration('24h') < timestamp('2021-01-01T00:00:00Z')`,
	`timestamp('2020-02-03T04:05:06Z').getFullYear('UTC') == 2020`,
	`self.s.matches('^a.c$') && self.s.contains('b') && self.s.startsWith('a') && self.s.endsWith('c')`,
	`[[1, 2], [3]].all(l, l.all(x, x > 0))`,
	`self == oldSelf && self.list == oldSelf.list`,
	// optional values
	`optional.of(self.n).hasValue() && optional.none().orValue(3) == 3`,
	`self.?none.orValue('x') == 'x' && self.map[?'k'].value() == 'v' && self.?s.or(optional.of('z')).value() == 'abc'`,
	`self.?s.optMap(x, x + '!').orValue('') == 'abc!' && self.?s.optFlatMap(x, optional.ofNonZeroValue(x)).hasValue()`,
	`[?self.?s, 'x'].size() == 2 && {?'a': self.?none}.size() == 0`,
	`optional.none().value() == 1`,
	// strings
	`'%s is %d'.format(['x', 3]) == 'x is 3' && 'AbC'.lowerAscii() == 'abc' && 'abc'.upperAscii() == 'ABC'`,
	`'a,b'.split(',') == ['a', 'b'] && ['a', 'b'].join('-') == 'a-b' && 'abc'.replace('b', 'x') == 'axc'`,
	`' a '.trim() == 'a' && 'abc'.indexOf('c') == 2 && 'abca'.lastIndexOf('a') == 3 && 'abc'.substring(1, 2) == 'b'`,
	`'abc'.charAt(1) == 'b' && strings.quote('a"b') != ''`,
	// sets, lists, two-variable comprehensions
	`sets.contains(self.list, ['a']) && sets.equivalent([1, 1], [1]) && sets.intersects([1], [1, 2])`,
	`[1, 2].isSorted() && [1, 2].sum() == 3 && [1, 2].min() == 1 && [1, 2].max() == 2 && [1, 2].indexOf(2) == 1 && [1,` +
		` 1].lastIndexOf(1) == 1`,
	`[3, 1].sort() == [1, 3] && [[1], [2]].flatten() == [1, 2] && [1, 2].reverse() == [2, 1] && [1, 1].distinct() == [1]`,
	`[1, 2, 3].slice(1, 2) == [2] && lists.range(3) == [0, 1, 2] && ['bb', 'a'].sortBy(x, x.size()) == ['a',` +
		` 'bb'] && [1].first().value() == [2, 1].last().value()`,
	`self.list.all(i, v, i < 3 && v != '') && self.map.transformMap(k, v,` +
		` v + '!') == {'k': 'v!'} && self.list.transformList(i, v, i) == [0, 1, 2]`,
	`self.map.transformMapEntry(k, v, {v: k}) == {'v': 'k'} && self.map.existsOne(k, v, v == 'v')`,
	// regular expressions, URLs, addresses, quantities, formats, versions
	`'abc 123'.find('[0-9]+') == '123' && 'a1b2'.findAll('[0-9]') == ['1', '2'] && 'a1b2'.findAll('[0-9]', 1) == ['1']`,
	`self.s.find(self.s) == 'abc' && self.s.matches(self.s)`,
	`isURL('https://a:80/p?q=1') && url('https://a:80/p?q=1').getHostname() == 'a' && url('https://a:80/p').getPort() ` +
		`== '80'`,
	`url('https://a/p?q=1').getQuery()['q'] == ['1'] && url('https://a/p').getEscapedPath() == '/p' && ` +
		`url('https://a').getScheme() == 'https' && url('https://a').getHost() == 'a'`,
	`url(':')  == url(':')`,
	`ip('127.0.0.1').isLoopback() && isIP('::1') && ip('::1').family() == 6 && ip.isCanonical('::1') && ` +
		`!ip('10.0.0.1').isUnspecified()`,
	`cidr('10.0.0.0/8').containsIP('10.1.2.3') && isCIDR('10.0.0.0/8') && ` +
		`cidr('10.0.0.0/8').containsCIDR('10.1.0.0/16') && cidr('10.0.0.0/8').prefixLength() == 8`,
	`cidr('10.1.0.0/8').masked() == cidr('10.0.0.0/8') && string(cidr('10.0.0.0/8').ip()) == '10.0.0.0'`,
	`quantity('1Gi').isGreaterThan(quantity('1Mi')) && isQuantity('1k') && quantity('1k').asInteger() == 1000 && ` +
		`quantity('1').add(1).compareTo(quantity('2')) == 0`,
	`quantity('1k').sub(quantity('1')).isInteger() && quantity('1').asApproximateFloat() == 1.0 && ` +
		`quantity('1').isLessThan(quantity('2'))`,
	`quantity('lots').isInteger()`,
	`!format.dns1123Label().validate('a').hasValue() && format.named('uuid').value().validate('x').hasValue()`,
	`semver('1.2.3').isLessThan(semver('1.3.0')) && isSemver('1.0.0') && semver('v1.2',` +
		` true).major() == 1 && semver('1.2.3').minor() + semver('1.2.3').patch() == 5`,
	// the limit of a call
	`lists.range(400).all(x, lists.range(400).all(y, lists.range(400).all(z, x + y + z >= 0)))`,
}

// testSelf returns the type and a value of self in expressions.
func testSelf(t *testing.T) (*apiservercel.DeclType, any) {
	t.Helper()
	schema := &spec.Schema{}
	err := json.Unmarshal([]byte(`{"type":"object","properties":{
		"n":{"type":"integer"},"d":{"type":"number"},"s":{"type":"string"},"none":{"type":"string"},
		"list":{"type":"array","items":{"type":"string"}},"map":{"type":"object","additionalProperties":{"type":"string"}},
		"intstr":{"x-kubernetes-int-or-string":true}}}`), schema)
	if err != nil {
		t.Fatal(err)
	}
	view := &openapi.Schema{Schema: schema}
	return common.SchemaDeclType(view, false).MaybeAssignTypeName("selfType"), common.UnstructuredToVal(map[string]any{
		"n": int64(7), "d": 1.25, "s": "abc", "list": []any{"a", "b", "c"},
		"map": map[string]any{"k": "v"}, "intstr": int64(3),
	}, view)
}

// TestPlannedProgramsAreThoseOfTheEnvironment compares programs that have only the
// functions they call with programs of the whole environment: values, errors and costs
// must be the same.
func TestPlannedProgramsAreThoseOfTheEnvironment(t *testing.T) {
	typ, self := testSelf(t)
	scope := NewScope(Variable{Name: "self", Type: typ}, Variable{Name: "oldSelf", Type: typ})
	comparePrograms(t, scope, Values{"self": self, "oldSelf": self}, expressions)
}

// TestProgramsOfGoValues does the same with variables whose values are maps and slices of Go, as claims of tokens
// and attributes of requests are.
func TestProgramsOfGoValues(t *testing.T) {
	text := apiservercel.StringType
	list := apiservercel.NewListType(text, -1)
	field := func(name string, typ *apiservercel.DeclType) *apiservercel.DeclField {
		return apiservercel.NewDeclField(name, typ, false, nil, nil)
	}
	user := apiservercel.NewObjectType("test.User", map[string]*apiservercel.DeclField{
		"name": field("name", text), "groups": field("groups", list), "uid": field("uid", text),
		"extra": field("extra", apiservercel.NewMapType(text, list, -1)),
	})
	claims := apiservercel.NewMapType(text, apiservercel.AnyType, -1)
	scope := NewScope(Variable{Name: "user", Type: user}, Variable{Name: "claims", Type: claims})
	values := Values{
		"user": map[string]any{
			"name": "jane", "groups": []string{"a", "b"}, "extra": map[string][]string{"k": {"v"}},
		},
		"claims": map[string]any{
			"sub": "jane", "n": 3.0, "roles": []any{"x", "y"}, "address": map[string]any{"city": "Ulm"}, "nothing": nil,
		},
	}
	comparePrograms(t, scope, values, []string{
		`user.name == 'jane' && user.groups.exists(g, g == 'a') && user.extra['k'] == ['v']`,
		`has(user.uid) || user.uid == 'x'`,
		`user.uid == 'x'`,
		`type(user) == test.User`,
		`type(claims.n) == double && type(claims.roles) == list`,
		`claims.sub + claims.roles.join(',') + string(claims.n)`,
		`claims.roles + ['z']`,
		`claims.?address.?city.orValue('')`,
		`claims.nothing == null`,
		`claims.none`,
		`claims.sub + 1 == claims.n`,
		`claims.all(k, v, k != '')`,
	})
}

func comparePrograms(t *testing.T, scope *Scope, vars Values, sources []string) {
	t.Helper()
	for _, source := range sources {
		e, err := scope.Compile(source, Stored)
		if err != nil {
			t.Errorf("%s\n%v", source, err)
			continue
		}
		whole, wholeErr := e.env.Program(e.ast,
			celgo.CostLimit(celconfig.PerCallLimit),
			celgo.CostTracking(&callCosts{}),
			celgo.InterruptCheckFrequency(celconfig.CheckFrequency))
		planned, err := e.plan()
		if wholeErr != nil || err != nil {
			if fmt.Sprint(err) != fmt.Sprint(wholeErr) {
				t.Errorf("%s\ngot  %v\nwant %v", source, err, wholeErr)
			}
			continue
		}
		want, got := outcome(t, whole, vars), outcome(t, planned, vars)
		if got != want {
			t.Errorf("%s\ngot  %s\nwant %s", source, got, want)
		}
	}
}

func outcome(t *testing.T, p celgo.Program, vars Variables) string {
	t.Helper()
	result, details, err := p.ContextEval(t.Context(), vars)
	if details == nil || details.ActualCost() == nil {
		t.Fatal("no cost")
	}
	if err != nil {
		return fmt.Sprintf("error %v, cost %d", err, *details.ActualCost())
	}
	return fmt.Sprintf("%v, cost %d", result.Value(), *details.ActualCost())
}
