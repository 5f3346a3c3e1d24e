package bootstrap

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/keelson-dev/keelson/internal/object/registry"
)

// trustName is the name of the ConfigMap that extension API servers read.
const trustName = "extension-apiserver-authentication"

var configMaps = corev1.SchemeGroupVersion.WithResource("configmaps")

// AuthenticationTrust has the certificate authorities and names with which extension API servers authenticate clients
// and the front proxy.
type AuthenticationTrust struct {
	// ClientCA and ProxyCA are certificate authorities as PEM text; empty if there are none.
	ClientCA, ProxyCA []byte
	// These are the headers of the front proxy, and the names that its certificate may have.
	UsernameHeaders, UIDHeaders, GroupHeaders, ExtraHeaderPrefixes, AllowedNames []string
}

// The keys of the ConfigMap.
const (
	keyClientCA     = "client-ca-file"
	keyProxyCA      = "requestheader-client-ca-file"
	keyUsernames    = "requestheader-username-headers"
	keyUIDs         = "requestheader-uid-headers"
	keyGroups       = "requestheader-group-headers"
	keyExtra        = "requestheader-extra-headers-prefix"
	keyAllowedNames = "requestheader-allowed-names"
)

// publishTrust writes the ConfigMap for extension API servers. It keeps what other servers
// have written there, because they may have other certificate authorities.
func (k *Keeper) publishTrust(ctx context.Context) error {
	if k.Trust == nil {
		return nil
	}
	own := k.Trust()
	current, found, err := stored[*corev1.ConfigMap](ctx, k, configMaps, metav1.NamespaceSystem, trustName)
	if err != nil {
		return err
	}
	if !found {
		data, err := own.merge(nil, k.Now())
		if err != nil || len(data) == 0 {
			return err
		}
		c := &corev1.ConfigMap{Data: data}
		c.Namespace, c.Name = metav1.NamespaceSystem, trustName
		return k.create(ctx, configMaps, c, manager)
	}
	data, err := own.merge(current.Data, k.Now())
	if err != nil || maps.Equal(data, current.Data) {
		return err
	}
	return k.update(ctx, configMaps, metav1.NamespaceSystem, trustName, manager, func(obj registry.Object) error {
		c := obj.(*corev1.ConfigMap)
		data, err := own.merge(c.Data, k.Now())
		if err != nil {
			return err
		}
		c.Data = data
		return nil
	})
}

// merge returns the new data of the ConfigMap. before is its existing data.
func (t *AuthenticationTrust) merge(before map[string]string, now time.Time) (map[string]string, error) {
	out := map[string]string{}
	if ca := mergeCertificates([]byte(before[keyClientCA]), t.ClientCA, now); len(ca) > 0 {
		out[keyClientCA] = string(ca)
	}
	ca := mergeCertificates([]byte(before[keyProxyCA]), t.ProxyCA, now)
	if len(ca) == 0 {
		return out, nil
	}
	out[keyProxyCA] = string(ca)
	for key, own := range map[string][]string{
		keyUsernames: t.UsernameHeaders, keyUIDs: t.UIDHeaders, keyGroups: t.GroupHeaders, keyExtra: t.ExtraHeaderPrefixes,
		keyAllowedNames: t.AllowedNames,
	} {
		list, err := mergeLists(before[key], own)
		if err != nil {
			return nil, err
		}
		if len(list) == 0 && key == keyUIDs {
			continue
		}
		text, err := json.Marshal(list)
		if err != nil {
			return nil, err
		}
		out[key] = string(text)
	}
	return out, nil
}

// mergeLists adds the missing elements to a JSON list.
func mergeLists(before string, own []string) ([]string, error) {
	list := []string{}
	if before != "" {
		if err := json.Unmarshal([]byte(before), &list); err != nil {
			return nil, err
		}
	}
	for _, s := range own {
		if !slices.Contains(list, s) {
			list = append(list, s)
		}
	}
	return list, nil
}

// mergeCertificates adds the missing certificates to PEM text, and removes expired ones.
func mergeCertificates(before, own []byte, now time.Time) []byte {
	var out bytes.Buffer
	var seen [][]byte
	for _, text := range [][]byte{before, own} {
		for {
			var block *pem.Block
			if block, text = pem.Decode(text); block == nil {
				break
			}
			c, err := x509.ParseCertificate(block.Bytes)
			if err != nil || now.After(c.NotAfter) ||
				slices.ContainsFunc(seen, func(s []byte) bool { return bytes.Equal(s, block.Bytes) }) {
				continue
			}
			seen = append(seen, block.Bytes)
			_ = pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: block.Bytes}) // writing to a buffer cannot fail
		}
	}
	return out.Bytes()
}
