package names

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation"
)

// twins has each function of the package (ours) and the function of apimachinery that returns the same messages
// (theirs).
var twins = map[string]struct{ ours, theirs func(string) []string }{
	"DNS label":     {IsDNS1123Label, validation.IsDNS1123Label},
	"DNS subdomain": {IsDNS1123Subdomain, validation.IsDNS1123Subdomain},
	"label key":     {IsLabelKey, validation.IsQualifiedName},
	"port name":     {IsPortName, validation.IsValidPortName},
	"label value":   {IsLabelValue, validation.IsValidLabelValue},
	"name": {
		func(s string) []string { return NameIsDNSSubdomain(s, false) },
		func(s string) []string { return apivalidation.NameIsDNSSubdomain(s, false) },
	},
	"prefix": {
		func(s string) []string { return NameIsDNSSubdomain(s, true) },
		func(s string) []string { return apivalidation.NameIsDNSSubdomain(s, true) },
	},
}

// texts are names at the limits of what is valid, and random ones.
func texts() []string {
	out := []string{
		"", "a", "-", ".", "/", "a\n", "a.b\n", "a/b\n", "a b", "é", "a\x00b", "a..b", ".a", "a.", "a/b/c", "/a", "a/",
	}
	for _, n := range []int{14, 15, 16, 62, 63, 64, 252, 253, 254} {
		for _, piece := range []string{"a", "A", "a.", "a-", "a_"} {
			long := strings.Repeat(piece, n)[:n]
			out = append(out, long, long[:n-1]+"z", "a/"+long, long+"/a")
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	const alphabet = "aazz09AZ--..__//é \n"
	for range 100_000 {
		text := make([]byte, random.IntN(8))
		for i := range text {
			text[i] = alphabet[random.IntN(len(alphabet))]
		}
		out = append(out, string(text))
	}
	return out
}

func TestSameAnswersAsApimachinery(t *testing.T) {
	all := texts()
	for name, twin := range twins {
		valid := 0
		for _, text := range all {
			got, want := twin.ours(text), twin.theirs(text)
			if !slices.Equal(got, want) {
				t.Fatalf("%s %q: %q, want %q", name, text, got, want)
			}
			if len(got) == 0 {
				valid++
			}
		}
		if valid < 100 || valid == len(all) {
			t.Errorf("%s: %d of %d texts were valid", name, valid, len(all))
		}
	}
}

// TestValidNamesNeedNoMemory checks that a valid name allocates no memory, which regular expressions would do.
func TestValidNamesNeedNoMemory(t *testing.T) {
	for name, twin := range twins {
		text := "app-1"
		if name == "label key" {
			text = "app.example.com/Name"
		}
		if n := testing.AllocsPerRun(100, func() { twin.ours(text) }); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
