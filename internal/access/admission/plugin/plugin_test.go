package plugin

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keelson-dev/keelson/config"
	"github.com/keelson-dev/keelson/internal/access/admission"
)

// TestAdmissionNames checks which plug-ins the flags switch on, and which names they refuse.
func TestAdmissionNames(t *testing.T) {
	all := List()
	if len(all) != 39 {
		t.Errorf("there are %d plug-ins; kube-apiserver 1.37 has 39", len(all))
	}
	running := func(c config.Admission) (names []string) {
		for i := range all {
			if enables(&c, &all[i]) {
				names = append(names, all[i].Name)
			}
		}
		return names
	}
	if got := len(running(config.Admission{})); got != 25 {
		t.Errorf("%d plug-ins run by default, not 25", got)
	}
	if got := len(running(config.Admission{Disable: []string{"Priority"}})); got != 24 {
		t.Errorf("%d plug-ins run without Priority, not 24", got)
	}
	only := running(config.Admission{Only: []string{"Priority", "NamespaceLifecycle"}})
	if strings.Join(only, " ") != "NamespaceLifecycle Priority" {
		t.Errorf("two plug-ins by --admission-control: %v", only)
	}
	for _, c := range []struct {
		config config.Admission
		want   string
	}{
		{config.Admission{Enable: []string{"Prority"}}, `enable-admission-plugins plugin "Prority" is unknown`},
		{config.Admission{Disable: []string{"Prority"}}, `disable-admission-plugins plugin "Prority" is unknown`},
		{config.Admission{Only: []string{"Prority"}}, `admission-control plugin "Prority" is unknown`},
		{config.Admission{Enable: []string{"Priority"}, Disable: []string{"Priority"}},
			"[Priority] in enable-admission-plugins and disable-admission-plugins overlapped"},
		{config.Admission{Only: []string{}, Disable: []string{"Priority"}}, "mutually exclusive"},
		{config.Admission{Enable: []string{"Priority", "JobValidation"}}, `enable-admission-plugins plugin "JobValidation" is unknown`},
		{config.Admission{Enable: []string{"MutatingAdmissionPolicy"}}, ""},
		{config.Admission{Only: []string{"MutatingAdmissionPolicy"}}, ""},
	} {
		err := validate(&c.config, all)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%+v: %v", c.config, err)
		case c.want != "" && (err == nil || !strings.Contains(config.CommandLine(err), c.want)):
			t.Errorf("%+v: %v, not %q", c.config, err, c.want)
		}
	}
}

// TestAdmissionConfigFile reads configurations of plug-ins from a file, and from a second file that the first one
// names.
func TestAdmissionConfigFile(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "admission.yaml")
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const head = "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n"
	write("limits.yaml", "kind: Configuration\n")
	write("admission.yaml", head+"- {name: EventRateLimit, path: limits.yaml}\n- {name: PodSecurity, configuration: {a: b}}\n")
	configs, err := ReadConfig(file, os.ReadFile, List())
	if err != nil {
		t.Fatal(err)
	}
	if got := string(configs["EventRateLimit"]); got != "kind: Configuration\n" {
		t.Errorf("from a file of its own: %q", got)
	}
	if got := string(configs["PodSecurity"]); got != `{"a":"b"}` {
		t.Errorf("from the file itself: %q", got)
	}
	for text, want := range map[string]string{
		head + "- {name: Unknown}\n":                                         `plug-in "Unknown": it is unknown`,
		head + "- {name: PodSecurity, path: missing.yaml}\n":                 "no such file",
		head + "- {name: PodSecurity, path: a, configuration: {}}\n":         "a configuration and a path",
		"apiVersion: v1\nkind: AdmissionConfiguration\n":                     `of kind "AdmissionConfiguration" of "v1"`,
		head + "- {name: PodSecurity, configuratoin: {}}\n":                  "configuratoin",
		"apiVersion: apiserver.config.k8s.io/v1\nkind: EgressSelectorConfig": `of kind "EgressSelectorConfig"`,
	} {
		write("admission.yaml", text)
		if _, err := ReadConfig(file, os.ReadFile, List()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, not %q", text, err, want)
		}
	}
}

// TestPluginsThatNeedAConfiguration checks that these plug-ins are refused without a configuration.
func TestPluginsThatNeedAConfiguration(t *testing.T) {
	for name, want := range map[string]string{
		"EventRateLimit":     "admission plug-in EventRateLimit: limits: Invalid value: null: must not be empty",
		"ImagePolicyWebhook": "admission plug-in ImagePolicyWebhook: no config specified",
	} {
		if _, err := NewChain(&Options{Config: &config.Admission{Enable: []string{name}}}); err == nil ||
			err.Error() != want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestUnchangedPluginsAreKept changes the configuration of one of four plug-ins. Only this plug-in is made again,
// and those that read files of their own. A bad configuration changes nothing.
func TestUnchangedPluginsAreKept(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var made, used []string
	plugin := func(name string) Plugin {
		return Plugin{Name: name, Make: func(in *Input) (admission.Plugin, error) {
			made = append(made, name+"="+string(in.Own))
			if string(in.Own) == `"bad"` {
				return admission.Plugin{}, errors.New("it is bad")
			}
			if name == "reads" {
				if _, err := in.Read(dir + "/file"); err != nil {
					return admission.Plugin{}, err
				}
				in.use = func() { used = append(used, string(in.Own)) }
			}
			return admission.Plugin{Name: name}, nil
		}}
	}
	write("file", "")
	conf := func(changes, reads string) {
		write("admission", "apiVersion: apiserver.config.k8s.io/v1\nkind: AdmissionConfiguration\nplugins:\n"+
			"- {name: same, configuration: 1}\n- {name: changes, configuration: "+changes+"}\n- {name: reads, configuration: "+
			reads+"}\n")
	}
	m := &maker{
		Options: &Options{Config: &config.Admission{ConfigFile: dir + "/admission"}},
		all:     []Plugin{plugin("plain"), plugin("same"), plugin("reads"), plugin("changes")},
	}
	chain := (*admission.Chain)(nil)
	for i, step := range []struct{ changes, reads, made, used, err string }{
		{"1", "1", "plain= same=1 reads=1 changes=1", "1", ""},
		{"2", "1", "reads=1 changes=2", "1", ""},
		{"bad", "2", `reads=2 changes="bad"`, "", "it is bad"},
		{"2", "2", "reads=2", "2", ""},
	} {
		made, used = nil, nil
		conf(step.changes, step.reads)
		err := m.apply(os.ReadFile)
		if (err == nil) != (step.err == "") || err != nil && !strings.Contains(err.Error(), step.err) {
			t.Errorf("step %d: %v", i, err)
		}
		if got := strings.Join(made, " "); got != step.made || strings.Join(used, " ") != step.used {
			t.Errorf("step %d: made %s, not %s; put into effect %q, not %q", i, got, step.made, used, step.used)
		}
		if now := m.chain.Current(); (now == chain) != (step.err != "") {
			t.Errorf("step %d: another chain: %v", i, now != chain)
		}
		chain = m.chain.Current()
	}
}
