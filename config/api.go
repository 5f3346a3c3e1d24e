package config

// API selects the parts of the API that are served.
type API struct {
	// FeatureGates are values of the form Name=true, also several with commas between them. The defaults are those of
	// kube-apiserver (--feature-gates).
	FeatureGates []string `flag:"feature-gates"`
	// RuntimeConfig are values of the form apps/v1=true, also several with commas between them: the built-in versions and
	// resources that are served or not. The defaults are those of kube-apiserver (--runtime-config).
	RuntimeConfig []string `flag:"runtime-config"`
	// EmulatedVersion is the minor of Kubernetes as which the server behaves, such as 1.36 (KEP-4330). By default it is the
	// newest that the program knows (--emulated-version).
	EmulatedVersion string `flag:"emulated-version"`
	// MinCompatibilityVersion is the oldest minor whose servers must be able to use what this server stores, such as 1.35. By
	// default it is the one before EmulatedVersion (--min-compatibility-version).
	MinCompatibilityVersion string `flag:"min-compatibility-version"`
	// EmulationForwardCompatible serves, of the beta and stable versions that are served, also the later ones of the same
	// resource that came after EmulatedVersion (--emulation-forward-compatible).
	EmulationForwardCompatible bool `flag:"emulation-forward-compatible"`
	// RuntimeConfigEmulationForwardCompatible serves what RuntimeConfig names, even if it came after EmulatedVersion
	// (--runtime-config-emulation-forward-compatible).
	RuntimeConfigEmulationForwardCompatible bool `flag:"runtime-config-emulation-forward-compatible"`
}
