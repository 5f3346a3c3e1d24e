package config_test

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/keelson-dev/keelson/config"
)

// TestZeroValueIsTheDefault checks that Complete does not change a complete configuration. So the results of
// Default and of the other functions can be passed to keelson.Start.
func TestZeroValueIsTheDefault(t *testing.T) {
	if d := config.Default(); !reflect.DeepEqual(d.Complete(), d) {
		t.Errorf("Default() is not complete: %+v", d)
	}
	if k := config.KubeAPIServer(); !reflect.DeepEqual(k.Complete(), k) {
		t.Errorf("KubeAPIServer() is not complete: %+v", k)
	}
	d := config.Default()
	if err := d.Validate(); err != nil {
		t.Error(err)
	}
	m := config.InMemory()
	if c := m.Complete(); m.Serving.Port != config.FreePort || c.Serving.Port != 0 || c.Storage.DataDir != "" || c.Validate() != nil {
		t.Errorf("InMemory(): %+v", c)
	}
}

// TestNone checks that Complete makes None 0 in exactly those fields whose comments name None.
func TestNone(t *testing.T) {
	comments := map[string]string{}
	for _, f := range fields(t) {
		comments[f.group+"."+f.name] = f.comment
	}
	var walk func(path string, v reflect.Value)
	for value := range 2 {
		want := value - 1 // None and 0
		walk = func(path string, v reflect.Value) {
			for i := range v.NumField() {
				f, at := v.Type().Field(i), path+"."+v.Type().Field(i).Name
				if f.Type.Kind() == reflect.Struct {
					walk(at, v.Field(i))
					continue
				}
				if !v.Field(i).CanInt() {
					continue
				}
				var c config.Config
				field := reflect.ValueOf(&c).Elem()
				for name := range strings.SplitSeq(strings.TrimPrefix(at, "."), ".") {
					field = field.FieldByName(name)
				}
				field.SetInt(int64(want))
				complete := reflect.ValueOf(c.Complete())
				for name := range strings.SplitSeq(strings.TrimPrefix(at, "."), ".") {
					complete = complete.FieldByName(name)
				}
				comment := comments[v.Type().Name()+"."+f.Name]
				named := strings.Contains(comment, "None") || strings.Contains(comment, "FreePort")
				if want == config.None && named != (complete.Int() == 0) {
					t.Errorf("%s: None becomes %d; its comment: %s", at, complete.Int(), comment)
				}
				if want == 0 && named && complete.Int() == 0 && !strings.Contains(comment, "default is 0") {
					t.Errorf("%s: 0 and None are the same", at)
				}
			}
		}
		walk("", reflect.ValueOf(config.Config{}))
	}
}

// field is a field of an exported struct in the source of the package.
type field struct{ group, name, comment, tag string }

func fields(t *testing.T) []field {
	t.Helper()
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	var out []field
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".go") || strings.HasSuffix(e.Name(), "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), e.Name(), nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok || !spec.Name.IsExported() {
				return true
			}
			s, ok := spec.Type.(*ast.StructType)
			if !ok {
				return true
			}
			for _, f := range s.Fields.List {
				if len(f.Names) > 1 {
					t.Errorf("%s: the fields %v share a comment", spec.Name, f.Names)
				}
				if len(f.Names) == 0 || !f.Names[0].IsExported() {
					continue
				}
				tag := ""
				if f.Tag != nil {
					tag = reflect.StructTag(strings.Trim(f.Tag.Value, "`")).Get("flag")
				}
				out = append(out, field{spec.Name.Name, f.Names[0].Name, strings.Join(strings.Fields(f.Doc.Text()), " "), tag})
			}
			return true
		})
	}
	return out
}

// TestFieldsAreDocumented: the comment of a field begins with its name, and names the flag in its tag.
func TestFieldsAreDocumented(t *testing.T) {
	count := map[string]int{}
	for _, f := range fields(t) {
		count[f.group]++
		if !strings.HasPrefix(f.comment, f.name+" ") && !strings.HasPrefix(f.comment, f.name+",") {
			t.Errorf("%s.%s has the comment %q", f.group, f.name, f.comment)
		}
		flag, _, _ := strings.Cut(f.tag, ",")
		if inverted, found := strings.CutPrefix(flag, "!"); found {
			flag = inverted + "=false"
		}
		if isGroup := f.group == "Audit" && f.name != "PolicyFile"; flag != "" && !isGroup &&
			!strings.Contains(f.comment, flag+")") {
			t.Errorf("%s.%s: the comment does not end with the flag %s: %q", f.group, f.name, flag, f.comment)
		}
	}
	for group, n := range count {
		if most := 15; n > most {
			t.Errorf("%s has %d fields, at most %d are allowed", group, n, most)
		}
	}
}

func TestErrorsNameFields(t *testing.T) {
	c := config.Default()
	c.Storage.DataDir, c.Authentication.ServiceAccounts.Issuers, c.Audit.Log.Path, c.Audit.Log.MaxAge = "", nil, "-", -2
	err := c.Validate()
	const (
		inCode = "Storage.DataDir must not be empty\nAuthentication.ServiceAccounts.Issuers must not be empty\n" +
			"Audit.Log.MaxAge -2 can't be a negative number"
		onCommandLine = "--data-dir must not be empty\nservice-account-issuer is a required flag\n" +
			"--audit-log-maxage -2 can't be a negative number"
	)
	if err == nil || err.Error() != inCode || config.CommandLine(err) != onCommandLine {
		t.Errorf("%v\n%s", err, config.CommandLine(err))
	}
	var mistake *config.Error
	if !errors.As(err, &mistake) {
		t.Errorf("%T", err)
	}
	cause := errors.New("cause")
	wrapped := fmt.Errorf("starting: %w", config.Errorf("{Network.ControlPlane.Hostname} and {Serving.Port}: %w", cause))
	if got := config.CommandLine(wrapped); got != "starting: Network.ControlPlane.Hostname and --secure-port: cause" || !errors.Is(wrapped, cause) {
		t.Error(got)
	}
}

func TestFlags(t *testing.T) {
	for path, want := range map[string]string{
		"Storage.Etcd.Servers": "etcd-servers", "Audit.Log.Mode": "audit-log-mode", "Audit.Webhook.Mode": "audit-webhook-mode",
		"Audit.Webhook.InitialBackoff": "audit-webhook-initial-backoff", "Serving.InProcess": "", "Nothing": "",
	} {
		if got := config.Flag(path); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
}

// onCommandLine checks the error that the command prints for a changed configuration: the same as kube-apiserver
// prints.
func onCommandLine(t *testing.T, want string, change func(*config.Config)) {
	t.Helper()
	c := config.Default()
	change(&c)
	got := ""
	if err := c.Validate(); err != nil {
		got = config.CommandLine(err)
	}
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestAudit(t *testing.T) {
	for want, change := range map[string]func(*config.Audit){
		"": func(*config.Audit) {},
		`invalid audit log mode x, allowed modes are "batch,blocking,blocking-strict"`: func(c *config.Audit) {
			c.Log.Mode = "x"
		},
		`invalid audit log format x, allowed formats are "legacy,json"`: func(c *config.Audit) {
			c.Log.Format = "x"
		},
		"--audit-log-maxage -1 can't be a negative number": func(c *config.Audit) {
			c.Log.MaxAge = -1
		},
		`invalid group version, allowed versions are ["audit.k8s.io/v1"]`: func(c *config.Audit) {
			c.Log.Version = "audit.k8s.io/v1beta1"
		},
		"invalid audit batch webhook buffer size 0, must be a positive number": func(c *config.Audit) {
			c.Webhook.BufferSize = 0
		},
		"invalid audit batch webhook throttle QPS 0, must be a positive number": func(c *config.Audit) {
			c.Webhook.QPS = 0
		},
		"invalid audit truncate webhook max batch size 1, must be greater than max event size (102400)": func(c *config.Audit) {
			c.Webhook.MaxBatchSize = 1
		},
	} {
		onCommandLine(t, want, func(c *config.Config) {
			c.Audit.Log.Path, c.Audit.Webhook.ConfigFile = "x", "y"
			change(&c.Audit)
		})
	}
}

func TestControlPlane(t *testing.T) {
	for want, p := range map[string]config.ControlPlane{
		"": {AdvertiseAddress: "::1", EndpointReconciler: config.ReconcilerNone},
		`cannot use public IP ::1 with endpoint reconciler: <nil>: Invalid value: "::1": may not be in the loopback range ` +
			`(127.0.0.0/8, ::1/128)`: {AdvertiseAddress: "::1", EndpointReconciler: config.ReconcilerLease},
		`cannot use public IP 169.254.0.1 with endpoint reconciler: <nil>: Invalid value: "169.254.0.1": may not be in the ` +
			`link-local range (169.254.0.0/16, fe80::/10)`: {
			AdvertiseAddress: "169.254.0.1", EndpointReconciler: config.ReconcilerMasterCount,
		},
		`--advertise-address must be an IP address, not "x"`: {
			AdvertiseAddress: "x", EndpointReconciler: config.ReconcilerLease,
		},
		"--endpoint-reconciler-type must be one of: [master-count, lease, none]": {EndpointReconciler: "x"},
		"--kubernetes-service-node-port 70000 must be between 0 and 65535, inclusive. If 0, the Kubernetes master service will be " +
			"of type ClusterIP": {EndpointReconciler: config.ReconcilerLease, ServiceNodePort: 70000},
	} {
		onCommandLine(t, want, func(c *config.Config) { c.Network.ControlPlane = p })
	}
}

func TestServiceAccounts(t *testing.T) {
	for want, change := range map[string]func(*config.ServiceAccounts){
		"": func(*config.ServiceAccounts) {},
		"can't set `--service-account-signing-key-file` and/or `--service-account-key-file` with " +
			"`--service-account-signing-endpoint` (They are mutually exclusive)": func(c *config.ServiceAccounts) {
			c.KeyFiles = []string{"x"}
		},
		"invalid value \"@/x\" passed for `--service-account-signing-endpoint`," +
			" when prefixed with @ must be a valid abstract socket name": func(c *config.ServiceAccounts) {
			c.SigningEndpoint = "@/x"
		},
		"the service-account-max-token-expiration must be between 1 hour and 2^32 seconds": func(c *config.ServiceAccounts) {
			c.MaxExpiration = time.Minute
		},
	} {
		onCommandLine(t, want, func(c *config.Config) {
			c.Authentication.ServiceAccounts.SigningEndpoint = "@signer"
			change(&c.Authentication.ServiceAccounts)
		})
	}
}
