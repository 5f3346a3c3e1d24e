package config

// API selects the parts of the API that are served.
type API struct {
	// FeatureGates are values of the form Name=true, also several with commas between them. The defaults are those of
	// kube-apiserver (--feature-gates).
	FeatureGates []string `flag:"feature-gates"`
	// RuntimeConfig are values of the form apps/v1=true, also several with commas between them: the built-in versions and
	// resources that are served or not. The defaults are those of kube-apiserver (--runtime-config).
	RuntimeConfig []string `flag:"runtime-config"`
	// EmulatedVersion is the minor version of Kubernetes whose behaviour the server emulates, such as 1.36
	// (KEP-4330). The default is the newest one that the program knows (--emulated-version).
	EmulatedVersion string `flag:"emulated-version"`
	// MinCompatibilityVersion is the oldest minor version whose servers must be able to read all objects that this
	// server stores, such as 1.35. The default is the version before EmulatedVersion
	// (--min-compatibility-version).
	MinCompatibilityVersion string `flag:"min-compatibility-version"`
	// EmulationForwardCompatible also serves API versions that are newer than EmulatedVersion. It does so for
	// resources that are served in an older beta or stable version (--emulation-forward-compatible).
	EmulationForwardCompatible bool `flag:"emulation-forward-compatible"`
	// RuntimeConfigEmulationForwardCompatible serves the API versions and resources in RuntimeConfig even if they
	// are newer than EmulatedVersion (--runtime-config-emulation-forward-compatible).
	RuntimeConfigEmulationForwardCompatible bool `flag:"runtime-config-emulation-forward-compatible"`
}
