package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestResultsAreRecorded(t *testing.T) {
	report := filepath.Join(t.TempDir(), "report.json")
	const content = `[{"SpecReports": [
		{"LeafNodeType": "It", "ContainerHierarchyTexts": ["[sig-a] Thing"], "LeafNodeText": "works",
			"State": "passed", "RunTime": 1600000000},
		{"LeafNodeType": "It", "ContainerHierarchyTexts": ["[sig-a] Thing"], "LeafNodeText": "fails",
			"State": "failed", "RunTime": 3000000000, "Failure": {"Message": "expected\n  that"}},
		{"LeafNodeType": "It", "ContainerHierarchyTexts": ["[sig-a] Thing"], "LeafNodeText": "two nodes", "State": "skipped",
			"Failure": {"Message": "needs two nodes"}},
		{"LeafNodeType": "It", "ContainerHierarchyTexts": ["[sig-a] Thing"], "LeafNodeText": "other", "State": "skipped"},
		{"LeafNodeType": "BeforeSuite", "State": "passed"}]}]`
	if err := os.WriteFile(report, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	reports, err := readReport(report)
	if err != nil || len(reports) != 3 {
		t.Fatalf("%v %+v", err, reports)
	}
	list := filepath.Join(t.TempDir(), "list.tsv")
	const before = listHeader + `
[sig-a] Thing works	pass	1	-	-
[sig-a] Thing fails	pass	1	-	-
[sig-a] Thing two nodes	fail	1	-	-
[sig-a] Thing other	pass	9	pass	9
`
	if err := os.WriteFile(list, []byte(before), 0o600); err != nil {
		t.Fatal(err)
	}
	specs, err := readList(list)
	if err != nil {
		t.Fatal(err)
	}
	worse := record(specs, reports, columns["keelson"])
	if len(worse) != 1 || !strings.HasSuffix(worse[0], "failed: expected that") {
		t.Errorf("failures that kube-apiserver does not have: %q", worse)
	}
	if s := summary(specs, reports, columns["keelson"]); !strings.Contains(s, "3 specs ran, in 5 s") ||
		!strings.Contains(s, "2 pass, 2 fail, 0 were not run") {
		t.Error(s)
	}
	if err := writeList(list, specs); err != nil {
		t.Fatal(err)
	}
	after, err := os.ReadFile(list)
	want := strings.NewReplacer("works\tpass\t1\t-\t-", "works\tpass\t1\tpass\t2",
		"fails\tpass\t1\t-\t-", "fails\tpass\t1\tfail\t3", "nodes\tfail\t1\t-\t-", "nodes\tfail\t1\tfail\t0").Replace(before)
	if err != nil || string(after) != want {
		t.Errorf("%v\n%s", err, after)
	}
}
