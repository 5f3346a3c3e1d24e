package egress

import (
	"os"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	apiserver "k8s.io/apiserver/pkg/apis/apiserver/v1beta1"

	"github.com/keelson-dev/keelson/internal/machinery/configfile"
)

var configKind = configfile.Kind{
	Group: "apiserver.k8s.io", Name: "EgressSelectorConfiguration", Versions: []string{"v1beta1", "v1alpha1"},
}

// networkNames are the names that a configuration may contain.
var networkNames = []string{string(Cluster), string(ControlPlane), string(Etcd)}

var protocols = []apiserver.ProtocolType{
	apiserver.ProtocolDirect, apiserver.ProtocolHTTPConnect, apiserver.ProtocolGRPC,
}

// validate returns the errors of a configuration, in the words of kube-apiserver.
func validate(c *apiserver.EgressSelectorConfiguration) field.ErrorList {
	at := field.NewPath("service", "connection")
	var errs field.ErrorList
	for i := range c.EgressSelections {
		errs = append(errs, validateConnection(&c.EgressSelections[i].Connection, at)...)
	}
	seen := map[string]bool{}
	for i, selection := range c.EgressSelections {
		name := strings.ToLower(selection.Name)
		switch {
		case seen[name]:
			errs = append(errs, field.Duplicate(at.Index(i), name))
		case !slices.Contains(networkNames, name):
			errs = append(errs, field.NotSupported(at, name, networkNames))
		}
		seen[name] = true
	}
	return errs
}

func validateConnection(c *apiserver.Connection, at *field.Path) field.ErrorList {
	switch c.ProxyProtocol {
	case apiserver.ProtocolDirect:
		if c.Transport != nil {
			return field.ErrorList{field.Invalid(at.Child("transport"), "direct", "config must be absent for direct connect")}
		}
		return nil
	case apiserver.ProtocolHTTPConnect:
		return validateConnect(c.Transport, at)
	case apiserver.ProtocolGRPC:
		switch {
		case c.Transport == nil:
			return field.ErrorList{field.Required(at.Child("transport"), "transport must be set for GRPC")}
		case c.Transport.UDS == nil:
			return field.ErrorList{field.Required(at.Child("uds"), "UDS must be set with GRPC")}
		}
		return validateSocket(c.Transport.UDS, at)
	}
	return field.ErrorList{field.NotSupported(at.Child("protocol"), c.ProxyProtocol, protocols)}
}

func validateConnect(t *apiserver.Transport, at *field.Path) field.ErrorList {
	switch {
	case t == nil:
		return field.ErrorList{field.Required(at.Child("transport"), "transport must be set for HTTPConnect")}
	case t.TCP != nil && t.UDS != nil:
		return field.ErrorList{field.Invalid(at.Child("tcp"), t.TCP, "TCP and UDS cannot both be set")}
	case t.TCP != nil:
		return validateTCP(t.TCP, at)
	case t.UDS != nil:
		return validateSocket(t.UDS, at)
	}
	return field.ErrorList{field.Required(at.Child("tcp"), "One of TCP or UDS must be set")}
}

func validateSocket(s *apiserver.UDSTransport, at *field.Path) field.ErrorList {
	if s.UDSName == "" {
		return field.ErrorList{field.Invalid(at.Child("udsName"), "nil", "must be present for UDS connections")}
	}
	return nil
}

func validateTCP(t *apiserver.TCPTransport, at *field.Path) field.ErrorList {
	switch {
	case strings.HasPrefix(t.URL, "https://"):
		return validateTLS(t.TLSConfig, at)
	case !strings.HasPrefix(t.URL, "http://"):
		return field.ErrorList{field.Invalid(at.Child("url"), t.URL, "supported connection protocols are http:// and "+
			"https://")}
	case t.TLSConfig != nil:
		return field.ErrorList{field.Invalid(at.Child("tlsConfig"), "nil", "config must not be present when using HTTP")}
	}
	return nil
}

func validateTLS(t *apiserver.TLSConfig, at *field.Path) field.ErrorList {
	at = at.Child("tlsConfig")
	if t == nil {
		return field.ErrorList{field.Required(at, "TLSConfig must be present when using HTTPS")}
	}
	var errs field.ErrorList
	if t.CABundle != "" && !exists(t.CABundle) {
		errs = append(errs, field.Invalid(at.Child("caBundle"), t.CABundle, "TLS config ca bundle does not exist"))
	}
	if t.ClientCert == "" {
		errs = append(errs, field.Invalid(at.Child("clientCert"), "nil", "Using TLS requires clientCert"))
	} else if !exists(t.ClientCert) {
		errs = append(errs, field.Invalid(at.Child("clientCert"), t.ClientCert, "TLS client cert does not exist"))
	}
	if t.ClientKey == "" {
		errs = append(errs, field.Invalid(at.Child("clientKey"), "nil", "Using TLS requires requires clientKey"))
	} else if !exists(t.ClientKey) {
		errs = append(errs, field.Invalid(at.Child("clientKey"), t.ClientKey, "TLS client key does not exist"))
	}
	return errs
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
