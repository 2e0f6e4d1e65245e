// Steps timed without a profiler, peaks of memory, and steps recorded by Kineto.
#pragma once

#include <chrono>
#include <fstream>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/csrc/autograd/profiler_kineto.h>
#include <torch/version.h>
#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 9
#include <ATen/DeviceAccelerator.h>
#define TRACEKIT_HAS_DEVICE_PEAKS
#endif

#include "report.h"
#include "steps.h"

inline void record(c10::Event& event, at::Device device) {
  const c10::impl::VirtualGuardImpl guard(device.type());
  event.record(guard.getStream(guard.getDevice()));
}

// Let a device finish what it was given.
inline void wait(at::Device device) {
  if (device.is_cpu()) return;
  c10::Event reached(device.type());
  record(reached, device);
  reached.synchronize();
}

// Duration of each step in ns: by the host's clock, or on a device's own without waiting between steps.
class Timer {
 public:
  explicit Timer(at::Device device) : device_(device) {}

  template <typename Run>
  void time(Run run) {
    if (device_.is_cpu()) {
      const auto start = std::chrono::steady_clock::now();
      run();
      const auto taken = std::chrono::steady_clock::now() - start;
      host_.push_back(std::chrono::duration_cast<std::chrono::nanoseconds>(taken).count());
      return;
    }
    auto start = event(), stop = event();
    run();
    record(stop, device_);
    events_.emplace_back(std::move(start), std::move(stop));
  }

  std::vector<int64_t> durations() {
    for (auto& [start, stop] : events_) {
      stop.synchronize();
      host_.push_back(static_cast<int64_t>(start.elapsedTime(stop) * 1e6 + 0.5));
    }
    events_.clear();
    return host_;
  }

 private:
  c10::Event event() {
    c10::Event made(device_.type(), c10::EventFlag::BACKEND_DEFAULT);  // the other flag keeps no time
    record(made, device_);
    return made;
  }

  at::Device device_;
  std::vector<int64_t> host_;
  std::vector<std::pair<c10::Event, c10::Event>> events_;
};

inline std::string sample(const std::string& source, const std::string& device, const std::string& metric,
                          int64_t value) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const int64_t nanoseconds = std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
  std::ostringstream out;
  out << "{\"t_unix_ns\":" << nanoseconds << ",\"source\":\"" << source << "\",\"device\":" << device
      << ",\"metric\":\"" << metric << "\",\"unit\":\"bytes\",\"value\":" << value << "}";
  return out.str();
}

inline int64_t host_peak() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("VmHWM:", 0) == 0) return std::stoll(line.substr(6)) * 1024;
  }
  return 0;
}

inline void reset_peaks(at::Device device) {
#ifdef TRACEKIT_HAS_DEVICE_PEAKS
  if (!device.is_cpu()) at::accelerator::resetPeakStats(0);
#endif
}

inline std::string peaks(at::Device device) {
  auto taken = sample("process", "null", "host_peak_bytes", host_peak());
#ifdef TRACEKIT_HAS_DEVICE_PEAKS
  if (!device.is_cpu()) {
    const auto stats = at::accelerator::getDeviceStats(0);
    taken += "," + sample("torch", "0", "device_peak_allocated_bytes", stats.allocated_bytes[0].peak);
    taken += "," + sample("torch", "0", "device_peak_reserved_bytes", stats.reserved_bytes[0].peak);
  }
#endif
  return "[" + taken + "]";
}

// Records steps as torch.profiler does with its schedule of one step that warms up; returns the last output.
inline c10::IValue profile(Program& program, at::Device device, int64_t steps, const std::string& trace,
                           Reporter& reporter) {
  namespace profiler = torch::autograd::profiler;
  const profiler::ProfilerConfig config(profiler::ProfilerState::KINETO, /*report_input_shapes=*/true,
                                        /*profile_memory=*/true);
  std::set<profiler::ActivityType> activities{profiler::ActivityType::CPU};
  if (!device.is_cpu()) activities.insert(profiler::ActivityType::CUDA);
  profiler::prepareProfiler(config, activities);
  c10::IValue last;
  reporter.steps("profile", steps + 1, [&](int64_t number) {
    if (number == 1) {
      program.step();
      wait(device);
      profiler::enableProfiler(config, activities);
      return;
    }
    const Range range("ProfilerStep#" + std::to_string(number - 1));
    last = program.step();
  });
  wait(device);  // the work of the last step belongs to it
  profiler::disableProfiler()->save(trace);
  return last;
}
