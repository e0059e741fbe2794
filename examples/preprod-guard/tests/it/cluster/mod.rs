//! The program as a process, called by the built-in API server and by a real one. A real one needs `KUBEBUILDER_ASSETS` (`eval
//! "$(tools/kube-apiserver/build.sh)"`).

mod detector;
mod guarded;
mod informed;
mod matrix;
mod readme;
mod requests;
mod scenario;
mod world;
